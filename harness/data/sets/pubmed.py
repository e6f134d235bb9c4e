"""Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016."""

from __future__ import annotations

from harness.data.planetoid import read_planetoid
from harness.data.sets import RealSet

SET = RealSet(
    folders=("PubMed", "Planetoid/PubMed"),
    files=(
        "raw/ind.pubmed.tx",
        "raw/ind.pubmed.allx",
        "raw/ind.pubmed.y",
        "raw/ind.pubmed.ty",
        "raw/ind.pubmed.ally",
        "raw/ind.pubmed.graph",
        "raw/ind.pubmed.test.index",
    ),
    read=read_planetoid,
    vertices=19_717,
    edges=88_648,
    features=500,
    classes=3,
    url="https://github.com/kimiyoung/planetoid/raw/master/data/",
    licence="MIT",
)
