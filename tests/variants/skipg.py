EXACT = {"skipg": [{"bound": 0}, {"bound": 0, "features": "refetch"}]}
STALE = [("skipg", {"bound": 2}), ("skipg", {"features": "refetch"})]
CONTROL = [("skipg", {})]
MODELS = ["gcn", "sage"]
