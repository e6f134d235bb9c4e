"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb
from harness.data.sets import RealSet

SET = RealSet(
    folders=("ogbn_papers100M", "ogbn-papers100M", "ogb/ogbn_papers100M", "ogb/ogbn-papers100M"),
    files=("raw/data.npz", "raw/node-label.npz", *ogb.files("time")),
    read=ogb.read_binary,
    vertices=111_059_956, edges=3_231_371_744, features=128, classes=172,
    library="ogb",
    arguments={"name": "ogbn-papers100M"},
    origin="http://snap.stanford.edu/ogb/data/nodeproppred/papers100M-bin.zip",
    licence="ODC-BY",
)  # fmt: skip
