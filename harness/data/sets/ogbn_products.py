"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb

SET = ogb.ogb_set(
    "products", "products", ogb.files("sales_ranking", "edge", "node-feat", "node-label"), ogb.read_tables,
    vertices=2_449_029, edges=123_718_280, features=100, classes=47,
    licence="Amazon's licence",
)  # fmt: skip
