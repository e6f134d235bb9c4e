EXACT = {"digest_a": None}
# Bits repeat where nothing depends on who comes first.
STALE = [
    ("digest_a", {"interval": 2, "order": "rotation"}),
    (
        "digest_a",
        {
            "interval": 1,
            "order": "rotation",
            "update": "delta",
            "scale": "1/M",
            "start": "zeros",
            "features": "refetch",
        },
    ),
]
MODELS = ["gcn", "sage", "gat"]
