EXACT = {"vanilla": [{"features": "refetch"}, {"features": "once"}]}
STALE = [("vanilla", {}), ("vanilla", {"features": "once"})]
CONTROL = [("vanilla", {})]
MODELS = ["gcn", "sage", "gat"]
