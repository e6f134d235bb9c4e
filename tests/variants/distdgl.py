ALL = {"fanouts": None, "batch": None}
DRAWN = {"fanouts": [3], "batch": 2}
EXACT = {
    "distdgl": [
        ALL,
        {**ALL, "features": "refetch", "service": "exchange", "batches": "global"},
        {**ALL, "features": "refetch", "cache": 0.4, "split": "owner"},
    ]
}
STALE = [
    ("distdgl", DRAWN),
    ("distdgl", {**DRAWN, "features": "refetch", "cache": 0.3, "policy": "frequency", "scale": "block"}),
    ("distdgl", {**DRAWN, "service": "exchange", "batches": "global", "features": "refetch"}),
    ("distdgl", {**DRAWN, "redraw": "vertex", "replace": True, "loss": "worker", "drop_last": True}),
    ("distdgl", {**DRAWN, "prefetch": 0}),
    ("distdgl", {**DRAWN, "remote": "zero", "split": "owner"}),
]
MODELS = ["gcn", "sage", "gat"]
