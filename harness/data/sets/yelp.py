"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import saint_set

SET = saint_set("Yelp", vertices=716_847, edges=13_954_818, features=300, classes=100)
