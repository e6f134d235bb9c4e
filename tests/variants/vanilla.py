EXACT = {"vanilla": [{"features": "refetch"}, {"features": "once"}], "vanilla/cover": [{}]}
STALE = [("vanilla", {}), ("vanilla", {"features": "refetch"})]
MODELS = ["gcn", "sage", "gat"]
