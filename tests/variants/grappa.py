EXACT = {"grappa": None}
STALE = [("grappa", {"period": 2}), ("grappa", {"period": 3, "correction": "shrunk"})]
CONTROL = [("grappa", {"period": 10})]
MODELS = ["gcn", "sage", "gat"]
