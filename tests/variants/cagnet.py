EXACT = {"cagnet": [{"features": "refetch"}, {"features": "once"}]}
STALE = [("cagnet", {})]
MODELS = ["gcn", "sage"]
