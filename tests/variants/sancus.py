EXACT = {
    "sancus": [
        {"staleness": "epoch_fixed", "bound": 0},
        {"staleness": "epoch_adaptive", "bound": 0, "features": "once"},
        {"staleness": "variation_gap", "bound": 0},
    ],
    "sancus/official": [{"bound": 0}],
}
STALE = [
    ("sancus", {"staleness": "epoch_fixed", "bound": 2}), ("sancus", {"staleness": "epoch_adaptive", "bound": 2}),
    ("sancus", {"staleness": "variation_gap", "bound": 0.05}), ("sancus/official", {"warmup": 3}),
]
CONTROL = [("sancus", {}), ("sancus", {"staleness": "variation_gap", "bound": 0.05})]
MODELS = ["gcn", "sage"]
