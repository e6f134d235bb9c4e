EXACT = {"vanilla": [{"features": "refetch"}, {"features": "once"}]}
STALE = [("vanilla", {}), ("vanilla", {"features": "refetch"})]
CONTROL = [("vanilla", {})]
MODELS = ["gcn", "sage", "gat"]
