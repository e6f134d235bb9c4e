"""Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016."""

from harness.data.planetoid import planetoid_set

SET = planetoid_set(
    "PubMed",
    vertices=19_717, edges=88_648, features=500, classes=3,
)  # fmt: skip
