"""SANCUS: what its staleness rules take for changed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.config import make_system
from tests import systems

NORMS = ("relative", "max", "fro")


class Alone:
    """What a worker without peers is told of flags: its own."""

    def all_gather_flag(self, mine, layer):
        return [mine]


def active(norm: str, bound: float, cached: np.ndarray, h: np.ndarray) -> bool:
    """Whether a worker that has broadcast `cached` broadcasts `h`."""
    block = systems.block("sancus", staleness="variation_gap", norm=norm, bound=bound)
    system = make_system(block)
    system.comm, system.own = Alone(), {1: torch.from_numpy(cached)}
    system.before_epoch(1)
    return system.stale_check(1, torch.from_numpy(h)) == [0]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bound", [0.0, 0.02, math.inf])
@given(block=arrays(np.float32, (4, 3), elements=st.floats(-2, 2, width=32)), at=st.integers(0, 11),
       bad=st.sampled_from([np.nan, np.inf]), where=st.sampled_from(["own", "cached", "both"]))  # fmt: skip
def test_a_block_with_a_value_that_is_not_a_number_has_changed(norm, bound, block, at, bad, where):
    damaged = block.copy()
    damaged.flat[at] = bad
    cached, h = (block if where == "own" else damaged), (block if where == "cached" else damaged)
    assert not active(norm, bound, block, block), "the case tests nothing"
    if np.isnan(bad) or where == "both" or bound < math.inf:  # the difference of two infinities is not a number
        assert active(norm, bound, cached, h)


@pytest.mark.parametrize("norm", NORMS)
def test_a_block_without_rows_has_never_changed(norm):
    empty = np.zeros((0, 3), np.float32)
    assert not active(norm, 0.0, empty, empty)
