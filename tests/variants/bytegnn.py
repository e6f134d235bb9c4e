ALL = {"fanouts": None, "batch": None}
DRAWN = {"fanouts": [3], "batch": 2, "task": 3, "threads": 2}
EXACT = {"bytegnn": [ALL, {**ALL, "features": "refetch", "task": 2, "threads": 3, "split": "even"}]}
STALE = [
    ("bytegnn", DRAWN),
    ("bytegnn", {**DRAWN, "features": "refetch", "order": "fifo", "launch": "fixed", "split": "even"}),
    ("bytegnn", {**DRAWN, "remote": "zero", "batches": "global", "inflight": True, "sigma": 1.0}),
]
MODELS = ["gcn", "sage", "gat"]
