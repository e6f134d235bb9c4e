EXACT = {"lean": [{"bits": 32}, {"bits": 32, "narrow": False, "features": "refetch"}]}
STALE = [
    ("lean", {}),
    ("lean", {"bits": 4, "messages": "rows", "features": "refetch"}),
    ("lean", {"extra_work": 0.5}),
    ("lean", {"bits": 4, "scale": "row", "extra_work": 0.5}),
    ("lean", {"bits": 4, "features": "refetch", "extra_work": 1}),
]
MODELS = ["gcn", "sage", "gat"]
