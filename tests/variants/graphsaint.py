EXACT = {"graphsaint": {"budget": None}}
SMALL = {"budget": 8, "coverage": 5}
STALE = [
    ("graphsaint", SMALL),
    ("graphsaint", {**SMALL, "sampler": "edge"}),
    ("graphsaint", {**SMALL, "sampler": "node"}),
    ("graphsaint", {**SMALL, "graph": "train"}),
]
MODELS = ["gcn", "sage", "gat"]
