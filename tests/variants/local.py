EXACT = {"local": None}
STALE = [("local", {})]
CONTROL = []
