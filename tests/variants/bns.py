EXACT = {"bns": [{"rate": 1.0}, {"rate": 1.0, "features": "once"}]}
STALE = [("bns", {"rate": 0.3}), ("bns", {"rate": 0.3, "features": "once"})]
CONTROL = [("bns", {"rate": 0.5})]
