from tests.variants import REFETCH

EXACT = {
    "sancus": [
        {"staleness": "epoch_adaptive", "bound": 0},
        {"staleness": "variation_gap", "bound": 0, **REFETCH},
    ],
    "sancus/official": [{"bound": 0}],
}
STALE = [
    ("sancus", {"staleness": "epoch_fixed", "bound": 2}),
    ("sancus", {"staleness": "variation_gap", "bound": 0.05, "features": "kept"}),
    ("sancus", {"staleness": "epoch_adaptive", "bound": 2, **REFETCH}),
    ("sancus", {"staleness": "variation_gap", "bound": 0.05, **REFETCH}),
    ("sancus/official", {"warmup": 3}),
]
