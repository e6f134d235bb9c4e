EXACT = {"zero_halo": None}
STALE = [("zero_halo", {})]
MODELS = ["gcn", "sage", "gat"]
