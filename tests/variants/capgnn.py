OFF = {"rapa": False, "pipeline": False}
TIERS = {"local_capacity": 3, "global_capacity": 7}
PAPERS = {"features": "refetch"}
FRESH = {"gradients": "fresh"}
EXACT = {"capgnn": [{"jaca": False, **OFF}, {"capacity": 0, **FRESH, **OFF}]}
STALE = [
    ("capgnn", {"refresh": 3, **TIERS, **PAPERS, **FRESH, "rapa": False}),
    ("capgnn", {"refresh": 3, **TIERS, **OFF}),
    ("capgnn", {"refresh": 3, **TIERS, **PAPERS, "tiers": "exclusive", "rapa": False}),
    ("capgnn", {"refresh": 4, "policy": "fifo", **TIERS, **PAPERS, **OFF}),
    (
        "capgnn",
        {
            "refresh": 3,
            "policy": "lru",
            "local_capacity": 30,
            "global_capacity": 9,
            "rapa": False,
            **PAPERS,
            **FRESH,
        },
    ),
    ("capgnn", {"jaca": False, "rapa": False}),
    ("capgnn", {"refresh": 3, "hosts": 2, **TIERS, **PAPERS, "rapa": False}),
    ("capgnn", {"refresh": 3}),
    ("capgnn", {"refresh": 3, "rapa_degrees": "local", **PAPERS}),
]
MODELS = ["gcn", "sage", "gat"]
