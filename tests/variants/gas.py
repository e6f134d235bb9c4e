EXACT = {"gas": {"batch": None}}
SMALL = {"clusters": 4, "batch": 2}
STALE = [
    ("gas", SMALL),
    ("gas", {**SMALL, "batch": 1, "features": "refetch", "start": "zeros"}),
    ("gas", {**SMALL, "refresh": "epoch"}),
    ("gas", {**SMALL, "outside": "zero"}),
    ("gas", {**SMALL, "outside": "drop"}),
]
MODELS = ["gcn", "sage", "gat"]
