EXACT = {"digest": None}
STALE = [
    ("digest", {"interval": 3}),
    ("digest", {"interval": 1, "loss": "global", "features": "refetch"}),
    (
        "digest",
        {
            "interval": 2,
            "aggregate": "weights",
            "schedule": "literal",
            "weighting": "train",
            "start": "zeros",
        },
    ),
]
MODELS = ["gcn", "sage", "gat"]
