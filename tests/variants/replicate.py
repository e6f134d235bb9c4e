EXACT = {
    "replicate": [
        {},
        {"mode": "cache", "features": "refetch"},
        {"mode": "communicate"},
        {"row": 2, "memory": 5, "features": "refetch"},
    ]
}
STALE = [("replicate", {}), ("replicate", {"row": 2, "features": "refetch"})]
MODELS = ["gcn", "sage", "gat"]
