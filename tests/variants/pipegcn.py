EXACT = {"pipegcn": None}
STALE = [
    ("pipegcn", {}),
    ("pipegcn", {"features": "refetch"}),
    ("pipegcn", {"smooth_features": True, "smooth_gradients": True, "momentum": 0.5}),
]
MODELS = ["gcn", "sage", "gat"]
