"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import read_saint
from harness.data.sets import RealSet

SET = RealSet(
    folders=("Yelp",),
    files=("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
    read=read_saint,
    vertices=716_847, edges=13_954_818, features=300, classes=100,
    library="Yelp",
    origin="Google Drive",
)  # fmt: skip
