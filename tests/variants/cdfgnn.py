from tests.variants import REFETCH

BASELINE = {"cache": False, "quantise": False}
EXACT = {
    "cdfgnn": [
        BASELINE,
        {**BASELINE, **REFETCH},
        {"quantise": False, "epsilon": 0.0, "nu1": 0.0, "nu2": 0.0, **REFETCH},
    ]
}
STALE = [
    ("cdfgnn", REFETCH),
    ("cdfgnn", {"quantise": False}),
    ("cdfgnn", {"cache": False, "bits": 4, **REFETCH}),
    ("cdfgnn", {"scatter": "diff", "bits": 2, "epsilon": 0.1, **REFETCH}),
]
METHODS = ["ebv", "hep", "dne", "metis/edges"]
