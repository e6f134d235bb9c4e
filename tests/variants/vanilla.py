EXACT = {"vanilla": [{"features": "refetch"}, {"features": "once"}], "vanilla/cover": [{}]}
STALE = [("vanilla", {}), ("vanilla", {"features": "refetch"})]
CONTROL = [("vanilla", {})]
MODELS = ["gcn", "sage", "gat"]
