"""Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018."""

from harness.data.attributed import shchur_set

SET = shchur_set(
    "CS", "Coauthor", "ms_academic_cs.npz",
    "48e79e9e838aab635ca8fff852d25cb804c0d8ed79e5bae0f1a8f2d147b2188d",
    vertices=18_333, edges=163_788, features=6_805, classes=15, homophily=0.808,
    size=2_796_277,
)  # fmt: skip
