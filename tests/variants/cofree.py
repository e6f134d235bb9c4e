from tests.variants import REFETCH

EXACT = {"cofree": None}
STALE = [
    ("cofree", {}),
    ("cofree", {"drop_edges": 3}),
    ("cofree", {"degrees": "local", "weights": "equal", **REFETCH}),
    ("cofree", {"drop_edges": 2, "drop_rate": 0.2, **REFETCH}),
]
METHODS = ["ebv", "hep", "dne", "metis/edges"]
