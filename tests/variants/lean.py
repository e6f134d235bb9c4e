EXACT = {
    "lean": [
        {"bits": 32},
        {"bits": 32, "messages": "rows"},
        {"bits": 32, "narrow": False, "features": "refetch"},
        {"bits": 32, "features": "refetch"},
    ]
}
STALE = [
    ("lean", {}),
    ("lean", {"bits": 4, "messages": "rows", "features": "refetch"}),
]
CONTROL = [("lean", {})]
MODELS = ["gcn", "sage", "gat"]
