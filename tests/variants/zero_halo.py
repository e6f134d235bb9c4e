EXACT = {"zero_halo": None}
STALE = [("zero_halo", {})]
CONTROL = []
