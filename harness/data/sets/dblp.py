"""Bojchevski, Günnemann, "Deep Gaussian Embedding of Graphs", ICLR 2018."""

from harness.data.attributed import read_attributed
from harness.data.sets import RealSet

SET = RealSet(
    folders=("dblp", "CitationFull/dblp"),
    files=("raw/dblp.npz",),
    read=read_attributed,
    vertices=17_716, edges=105_734, features=1_639, classes=4, homophily=0.828,
    own_split=False, size=2_370_645,
    sha256={"dblp.npz": "733c4ec2eec712a3c2b6cf9660ba9f4e1bdf4ce27869114f1de29d8e7a5a24f5"},
    url="https://github.com/abojchevski/graph2gauss/raw/master/data/",
    licence="MIT",
)  # fmt: skip
