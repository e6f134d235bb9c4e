EXACT = {"cagnet": [{"features": "refetch"}, {"features": "once"}]}
STALE = [("cagnet", {})]
CONTROL = [("cagnet", {})]
MODELS = ["gcn", "sage"]
