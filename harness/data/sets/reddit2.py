"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import read_saint
from harness.data.sets import RealSet

SET = RealSet(
    folders=("Reddit2",),
    files=("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
    read=read_saint,
    vertices=232_965, edges=23_213_838, features=602, classes=41,
    library="Reddit2",
    origin="Google Drive",
)  # fmt: skip
