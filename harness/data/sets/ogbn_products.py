"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb
from harness.data.sets import RealSet

SET = RealSet(
    folders=("ogbn_products", "ogbn-products", "ogb/ogbn_products", "ogb/ogbn-products"),
    files=ogb.files("sales_ranking", "edge", "node-feat", "node-label"),
    read=ogb.read_tables,
    vertices=2_449_029, edges=123_718_280, features=100, classes=47,
    library="ogb",
    arguments={"name": "ogbn-products"},
    origin="http://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
    licence="Amazon's licence",
)  # fmt: skip
