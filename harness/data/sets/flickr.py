"""Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020."""

from harness.data.saint import saint_set

SET = saint_set("Flickr", vertices=89_250, edges=899_756, features=500, classes=7)
