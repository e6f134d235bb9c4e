EXACT = {"ecgraph": [{"period": 1, "backward_bits": 32}]}
STALE = [
    ("ecgraph", {"period": 3}),
    ("ecgraph", {"period": 4, "tune": False, "rate": "computed", "features": "refetch"}),
    ("ecgraph", {"period": 1, "backward_bits": 1}),
    ("ecgraph", {"compensate": False, "features": "refetch"}),
]
MODELS = ["gcn", "sage", "gat"]
