"""Scores of splits: exact, and none where there is nothing to score."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tests import systems
from tests.graphs import random_graph


@pytest.mark.parametrize("multilabel", [False, True])
def test_a_split_without_vertices_has_no_score(pool, multilabel):
    graph = random_graph(30, 4, multilabel=multilabel)
    graph = dataclasses.replace(graph, val=np.zeros(30, bool))
    for train, val, test in systems.run(pool, graph, {"_target_": "systems.vanilla.Vanilla"}, 1).scores:
        assert 0 <= train <= 1 and 0 <= test <= 1 and math.isnan(val)
