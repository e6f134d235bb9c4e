"""Hamilton, Ying, Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS 2017."""

from harness.data.saint import read_reddit
from harness.data.sets import RealSet

SET = RealSet(
    folders=("Reddit",),
    files=("raw/reddit_data.npz", "raw/reddit_graph.npz"),
    read=read_reddit,
    vertices=232_965, edges=114_615_892, features=602, classes=41,
    library="Reddit",
    origin="https://data.dgl.ai/dataset/reddit.zip",
)  # fmt: skip
