EXACT = {"cagnet": [{"features": "refetch"}, {"features": "once"}]}
STALE = [("cagnet", {})]
