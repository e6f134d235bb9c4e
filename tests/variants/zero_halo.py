EXACT = {"zero_halo": None}
STALE = [("zero_halo", {})]
CONTROL = []
MODELS = ["gcn", "sage", "gat"]
