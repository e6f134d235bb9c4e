"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb

SET = ogb.ogb_set(
    "arxiv", "arxiv", ogb.files("time", "edge", "node-feat", "node-label"), ogb.read_tables,
    vertices=169_343, edges=2_315_598, features=128, classes=40,
    licence="ODC-BY",
)  # fmt: skip
