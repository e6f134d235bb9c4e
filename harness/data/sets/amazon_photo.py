"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import shchur_set

SET = shchur_set(
    "Photo", "Amazon", "amazon_electronics_photo.npz",
    "f0552bc8bcdb103c25b07cf4619bd9458af435c0728dc8366e86ffb912018c25",
    vertices=7_650, edges=238_162, features=745, classes=8, homophily=0.827,
    size=1_769_253,
)  # fmt: skip
