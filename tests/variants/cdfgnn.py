BASELINE = {"cache": False, "quantise": False}
EXACT = {"cdfgnn": [BASELINE, {**BASELINE, "features": "once"}, {"quantise": False, "epsilon": 0.0, "nu1": 0.0, "nu2": 0.0}]}
STALE = [
    ("cdfgnn", {}), ("cdfgnn", {"quantise": False, "features": "once"}), ("cdfgnn", {"cache": False, "bits": 4}),
    ("cdfgnn", {"scatter": "diff", "bits": 2, "epsilon": 0.1}),
]
CONTROL = [("cdfgnn", {}), ("cdfgnn", {"features": "once", "epsilon": 0.1})]
MODELS = ["gcn", "sage"]
METHODS = ["ebv", "hep", "dne"]
