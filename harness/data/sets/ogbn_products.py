"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from __future__ import annotations

from harness.data.ogb import read_tables
from harness.data.sets import RealSet

SET = RealSet(
    folders=("ogbn_products", "ogbn-products", "ogb/ogbn_products", "ogb/ogbn-products"),
    files=(
        "raw/edge.csv.gz",
        "raw/node-feat.csv.gz",
        "raw/node-label.csv.gz",
        "split/sales_ranking/train.csv.gz",
        "split/sales_ranking/valid.csv.gz",
        "split/sales_ranking/test.csv.gz",
    ),
    read=read_tables,
    vertices=2_449_029,
    edges=123_718_280,
    features=100,
    classes=47,
    library="ogb",
    arguments={"name": "ogbn-products"},
    origin="http://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
    licence="Amazon's licence",
)
