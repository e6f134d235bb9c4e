"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import shchur_set

SET = shchur_set(
    "Physics", "Coauthor", "ms_academic_phy.npz",
    "121a85ee9fac9859693e649d3e9f3561e3a23a9aa4d8e8951e9e3eec8e9b52ef",
    vertices=34_493, edges=495_924, features=8_415, classes=5, homophily=0.931,
    size=3_767_567,
)  # fmt: skip
