"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb
from harness.data.sets import RealSet

SET = RealSet(
    folders=("ogbn_proteins", "ogbn-proteins", "ogb/ogbn_proteins", "ogb/ogbn-proteins"),
    files=ogb.files("species", "edge", "edge-feat", "node-label"),
    read=ogb.read_edge_features,
    vertices=132_534, edges=79_122_504, features=8, classes=112,
    library="ogb",
    arguments={"name": "ogbn-proteins"},
    origin="http://snap.stanford.edu/ogb/data/nodeproppred/proteins.zip",
    licence="CC-0",
)  # fmt: skip
