STALE = [("varco", {"compression": 4, "slope": 0})]
