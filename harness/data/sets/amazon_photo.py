"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import read_attributed
from harness.data.sets import RealSet

SET = RealSet(
    folders=("Photo", "Amazon/Photo"),
    files=("raw/amazon_electronics_photo.npz",),
    read=read_attributed,
    vertices=7_650, edges=238_162, features=745, classes=8, homophily=0.827,
    own_split=False, size=1_700_000,
    sha256={
        "amazon_electronics_photo.npz": "f0552bc8bcdb103c25b07cf4619bd9458af435c0728dc8366e86ffb912018c25"
    },
    url="https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    licence="MIT",
)  # fmt: skip
