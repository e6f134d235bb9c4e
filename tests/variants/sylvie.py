EXACT = {"sylvie": None}
STALE = [
    ("sylvie", {}),
    ("sylvie", {"bits": 2, "period": 3}),
    ("sylvie", {"mode": "synchronous", "features": "refetch"}),
    ("sylvie", {"period": 0, "features": "refetch"}),
]
MODELS = ["gcn", "sage", "gat"]
