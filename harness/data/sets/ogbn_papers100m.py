"""Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020."""

from harness.data import ogb

SET = ogb.ogb_set(
    "papers100M", "papers100M-bin",
    ("raw/data.npz", "raw/node-label.npz", *ogb.files("time")), ogb.read_binary,
    vertices=111_059_956, edges=3_231_371_744, features=128, classes=172,
    licence="ODC-BY",
)  # fmt: skip
