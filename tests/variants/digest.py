EXACT = {"digest": None}
STALE = [("digest", {"interval": 3}), ("digest", {"interval": 1, "aggregate": "gradients", "loss": "global", "features": "refetch"}),
         ("digest", {"interval": 2, "schedule": "literal", "weighting": "train", "start": "zeros"})]
CONTROL = [("digest", {"interval": 2})]
MODELS = ["gcn", "sage", "gat"]
