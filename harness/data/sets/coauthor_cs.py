"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import read_attributed
from harness.data.sets import RealSet

SET = RealSet(
    folders=("CS", "Coauthor/CS"),
    files=("raw/ms_academic_cs.npz",),
    read=read_attributed,
    vertices=18_333, edges=163_788, features=6_805, classes=15, homophily=0.808,
    own_split=False, size=2_700_000,
    sha256={"ms_academic_cs.npz": "48e79e9e838aab635ca8fff852d25cb804c0d8ed79e5bae0f1a8f2d147b2188d"},
    url="https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
    licence="MIT",
)  # fmt: skip
