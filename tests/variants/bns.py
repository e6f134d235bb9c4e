EXACT = {"bns": [{"rate": 1.0}]}
STALE = [("bns", {"rate": 0.3}), ("bns", {"rate": 0.3, "features": "refetch"})]
