EXACT = {"supergnn": [{"bits": 32}]}
STALE = [
    ("supergnn", {"bits": 4}),
    ("supergnn", {"bits": 2, "features": "refetch"}),
    ("supergnn", {"bits": 16}),
]
MODELS = ["gcn", "sage", "gat"]
