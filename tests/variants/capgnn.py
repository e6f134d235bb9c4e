OFF = {"rapa": False, "pipeline": False}
EXACT = {
    "capgnn": [
        {"jaca": False, **OFF}, {"jaca": False, "features": "once", **OFF},
        {"refresh": 1, **OFF}, {"refresh": 1, "capacity": 3, **OFF}, {"refresh": 1, "local_capacity": 2, "global_capacity": 5, "features": "once", **OFF},
        {"refresh": 1, "policy": "lru", "capacity": 4, **OFF}, {"capacity": 0, **OFF},
    ],
}
STALE = [("capgnn", {"refresh": 3, "capacity": 3, **OFF}), ("capgnn", {"refresh": 4, "policy": "fifo", "local_capacity": 4, "global_capacity": 9, **OFF}),
         ("capgnn", {"refresh": 3, "policy": "lru", "local_capacity": 30, "global_capacity": 9, "gradients": "exact", **OFF})]
CONTROL = [("capgnn", {**OFF})]
MODELS = ["gcn", "sage"]
