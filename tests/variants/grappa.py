EXACT = {"grappa": None}
STALE = [("grappa", {"period": 2}), ("grappa", {"period": 3, "correction": "shrunk"})]
MODELS = ["gcn", "sage", "gat"]
