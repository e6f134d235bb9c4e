EXACT = {"skipg": [{"bound": 0}]}
STALE = [("skipg", {"bound": 2}), ("skipg", {"features": "refetch"})]
