EXACT = {
    "pscgcn": [
        {"tau": 0, "rate": 1.0, "cache": 0.3},
        {"tau": 0, "rate": 1.0, "features": "once", "gradients": "sampled"},
        {"tau": 0, "rate": 1.0, "rescale": "selfnorm", "sampling": "uniform", "cache": 0.0},
    ]
}
STALE = [
    ("pscgcn", {"rate": 0.5, "refresh": 3}),
    ("pscgcn", {"tau": 2, "rate": 0.5, "refresh": 2, "gradients": "sampled", "features": "once"}),
    ("pscgcn", {"tau": 0, "rate": 0.3, "sampling": "uniform", "policy": "random", "rescale": "selfnorm"}),
]
CONTROL = [("pscgcn", {"rate": 0.5, "refresh": 20})]
MODELS = ["gcn", "sage"]
