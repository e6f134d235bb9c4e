"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import saint_set

SET = saint_set(
    "AmazonProducts", "amazon-products", "amazon_products", "Amazon",
    vertices=1_569_960, edges=264_339_468, features=200, classes=107,
)  # fmt: skip
