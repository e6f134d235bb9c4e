"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import saint_set

SET = saint_set("Reddit2", vertices=232_965, edges=23_213_838, features=602, classes=41)
