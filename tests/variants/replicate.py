EXACT = {"replicate": [{}]}
STALE = [("replicate", {}), ("replicate", {"row": 2, "features": "refetch"})]
MODELS = ["gcn", "sage", "gat"]
