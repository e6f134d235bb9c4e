EXACT = {"local": None}
STALE = [("local", {})]
MODELS = ["gcn", "sage", "gat"]
