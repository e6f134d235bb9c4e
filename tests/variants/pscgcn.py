from tests.variants import REFETCH

EXACT = {"pscgcn": [{"tau": 0, "rate": 1.0, "cache": 0.3, **REFETCH}, {"tau": 0, "rate": 1.0}]}
STALE = [
    ("pscgcn", {"rate": 0.5, "refresh": 3, **REFETCH}),
    ("pscgcn", {"tau": 2, "rate": 0.5, "refresh": 2, "gradients": "sampled"}),
    (
        "pscgcn",
        {"tau": 0, "rate": 0.3, "sampling": "uniform", "policy": "random", "rescale": "selfnorm", **REFETCH},
    ),
]
