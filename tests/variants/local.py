EXACT = {"local": None}
STALE = [("local", {})]
CONTROL = []
MODELS = ["gcn", "sage", "gat"]
