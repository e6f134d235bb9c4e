"""Bojchevski, Günnemann, "Deep Gaussian Embedding of Graphs", ICLR 2018."""

from harness.data.attributed import read_attributed
from harness.data.sets import RealSet

SET = RealSet(
    folders=("cora", "CitationFull/cora", "CoraFull", "CoraFull/cora", "cora_full"),
    files=("raw/cora.npz",),
    read=read_attributed,
    vertices=19_793, edges=126_842, features=8_710, classes=70,
    own_split=False,
    url="https://github.com/abojchevski/graph2gauss/raw/master/data/",
    licence="MIT",
)  # fmt: skip
