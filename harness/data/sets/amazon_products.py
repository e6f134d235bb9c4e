"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import read_saint
from harness.data.sets import RealSet

SET = RealSet(
    folders=("AmazonProducts", "amazon-products", "amazon_products", "Amazon"),
    files=("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
    read=read_saint,
    vertices=1_569_960, edges=264_339_468, features=200, classes=107,
    library="AmazonProducts",
    origin="Google Drive",
)  # fmt: skip
