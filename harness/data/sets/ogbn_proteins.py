"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb

SET = ogb.ogb_set(
    "proteins", "proteins", ogb.files("species", "edge", "edge-feat", "node-label"), ogb.read_edge_features,
    vertices=132_534, edges=79_122_504, features=8, classes=112,
    licence="CC-0",
)  # fmt: skip
