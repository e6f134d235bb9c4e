OFF = {"rapa": False, "pipeline": False}
TIERS = {"local_capacity": 3, "global_capacity": 7}
EXACT = {
    "capgnn": [
        {"jaca": False, **OFF}, {"jaca": False, "features": "once", **OFF}, {"refresh": 1, **OFF}, {"capacity": 0, **OFF},
        {"refresh": 1, **TIERS, **OFF}, {"refresh": 1, **TIERS, "features": "once", "gradients": "exact", **OFF},
        {"refresh": 1, "policy": "lru", **TIERS, **OFF},
    ],
}
STALE = [
    ("capgnn", {"refresh": 3, **TIERS, "rapa": False}), ("capgnn", {"refresh": 3, **TIERS, "gradients": "exact", **OFF}),
    ("capgnn", {"refresh": 4, "policy": "fifo", **TIERS, **OFF}),
    ("capgnn", {"refresh": 3, "policy": "lru", "local_capacity": 30, "global_capacity": 9, "rapa": False}),
    ("capgnn", {"jaca": False, "rapa": False}), ("capgnn", {"refresh": 3}), ("capgnn", {"refresh": 3, "rapa_degrees": "local"}),
]
CONTROL = [("capgnn", {}), ("capgnn", OFF)]
MODELS = ["gcn", "sage", "gat"]
