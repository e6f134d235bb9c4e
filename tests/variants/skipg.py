EXACT = {"skipg": [{"bound": 0}, {"bound": 0, "features": "once"}]}
STALE = [("skipg", {"bound": 2}), ("skipg", {"features": "once"})]
CONTROL = [("skipg", {})]
MODELS = ["gcn", "sage"]
