"""Platonov et al., "A Critical Look at the Evaluation of GNNs under Heterophily", ICLR 2023."""

from harness.data.attributed import read_heterophilous
from harness.data.sets import RealSet

SET = RealSet(
    folders=("tolokers", "HeterophilousGraphDataset/tolokers"),
    files=("raw/tolokers.npz",),
    read=read_heterophilous,
    vertices=11_758, edges=1_038_000, features=10, classes=2, homophily=0.595,
    splits=(5879, 2939, 2940), size=1_329_769,
    sha256={"tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667"},
    url="https://github.com/yandex-research/heterophilous-graphs/raw/main/data/",
    licence="MIT",
)  # fmt: skip
