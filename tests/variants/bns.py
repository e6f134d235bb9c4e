EXACT = {"bns": [{"rate": 1.0}, {"rate": 1.0, "features": "refetch"}]}
STALE = [("bns", {"rate": 0.3}), ("bns", {"rate": 0.3, "features": "refetch"})]
CONTROL = [("bns", {"rate": 0.5})]
