"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import shchur_set

SET = shchur_set(
    "Computers", "Amazon", "amazon_electronics_computers.npz",
    "bffa1720ee30487a6f10f2ad57741d1a401d89a31a6a4c5c6de1ba42a1f2a0e0",
    vertices=13_752, edges=491_722, features=767, classes=10, homophily=0.777,
    size=3_407_870,
)  # fmt: skip
