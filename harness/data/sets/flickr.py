"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import read_saint
from harness.data.sets import RealSet

SET = RealSet(
    folders=("Flickr",),
    files=("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
    read=read_saint,
    vertices=89_250, edges=899_756, features=500, classes=7,
    library="Flickr",
    origin="Google Drive",
)  # fmt: skip
