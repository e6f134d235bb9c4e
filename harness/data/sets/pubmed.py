"""Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016."""

from harness.data.planetoid import PARTS, read_planetoid
from harness.data.sets import RealSet

SET = RealSet(
    folders=("PubMed", "Planetoid/PubMed"),
    files=tuple(f"raw/ind.pubmed.{part}" for part in PARTS),
    read=read_planetoid,
    vertices=19_717, edges=88_648, features=500, classes=3,
    url="https://github.com/kimiyoung/planetoid/raw/master/data/",
    licence="MIT",
)  # fmt: skip
