EXACT = {"sanqus": [{"staleness": "epoch_adaptive", "bound": 0, "bits": 32}]}
STALE = [
    ("sanqus", {}),
    ("sanqus", {"staleness": "variation_gap", "bound": 0.05, "bits": 4, "features": "refetch"}),
    ("sanqus", {"staleness": "epoch_adaptive", "bound": 2, "gradients": "exact"}),
]
