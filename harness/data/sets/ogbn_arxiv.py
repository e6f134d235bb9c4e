"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb
from harness.data.sets import RealSet

SET = RealSet(
    folders=("ogbn_arxiv", "ogbn-arxiv", "ogb/ogbn_arxiv", "ogb/ogbn-arxiv"),
    files=ogb.files("time", "edge", "node-feat", "node-label"),
    read=ogb.read_tables,
    vertices=169_343, edges=2_315_598, features=128, classes=40,
    library="ogb",
    arguments={"name": "ogbn-arxiv"},
    origin="http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
    licence="ODC-BY",
)  # fmt: skip
