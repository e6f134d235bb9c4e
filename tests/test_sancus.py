"""SANCUS: what its staleness rules take for changed, and what its caches hold."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from harness.comm.recorder import Recorder
from harness.run.config import make_system
from systems.parts.blocks import BlockSystem
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings

NORMS = ("relative", "max", "fro", "mean")


class Alone:
    """What a worker without peers is told of flags: its own."""

    def all_gather_flag(self, mine, layer):
        return [mine]


def active(norm: str, bound: float, cached: np.ndarray, h: np.ndarray) -> bool:
    """Whether a worker that has broadcast `cached` broadcasts `h`."""
    block = systems.block("sancus", staleness="variation_gap", norm=norm, bound=bound)
    system = make_system(block)
    system.comm, system.own, system.recorder = Alone(), {1: torch.from_numpy(cached)}, Recorder()
    system.before_epoch(1)
    return system.stale_check(1, torch.from_numpy(h)) == [0]


@settings(max_examples=60)
@given(
    norm=st.sampled_from(NORMS),
    bound=st.sampled_from([0.0, 0.02, math.inf]),
    block=arrays(np.float32, (4, 3), elements=st.floats(-2, 2, width=32)),
    at=st.integers(0, 11),
    bad=st.sampled_from([np.nan, np.inf]),
    where=st.sampled_from(["own", "cached", "both"]),
)
def test_a_block_with_a_value_that_is_not_a_number_has_changed(norm, bound, block, at, bad, where):
    damaged = block.copy()
    damaged.flat[at] = bad
    cached, h = (block if where == "own" else damaged), (block if where == "cached" else damaged)
    assert not active(norm, bound, block, block), "the case tests nothing"
    if bound < math.inf or np.isnan(bad) or where == "both":  # two infinities differ by what is not a number
        assert active(norm, bound, cached, h)


def test_the_mean_gap_is_that_of_all_entries():
    cached, h = np.zeros((2, 4), np.float32), np.array([[0, 0.5, -0.5, 0], [1.0, 0, 0, 0]], np.float32)
    assert active("mean", 0.249, cached, h) and not active("mean", 0.25, cached, h)
    assert active("mean", 0.249, h, cached) and not active("mean", 0.25, h, cached), "absolute"


@pytest.mark.parametrize("norm", NORMS)
def test_a_block_without_rows_has_never_changed(norm):
    empty = np.zeros((0, 3), np.float32)
    assert not active(norm, 0.0, empty, empty)


@pytest.mark.parametrize("features, first", [("refetch", 0), ("once", 1)])
def test_cache_bytes_are_the_closed_form(pool, features, first):
    how = Settings(model=systems.small("gcn", 3, 7), dtype="float32", epochs=2)
    for parts in (3, 1):
        block = systems.block("sancus", features=features)
        outcome = systems.run(pool, random_graph(6, vertices=32), block, parts, "random", how)
        for epoch in range(how.epochs):
            for j, worker in enumerate(outcome.workers):
                told = worker["metrics"][epoch].items()
                layers = {layer: value for (layer, name), value in told if name == "cache_bytes"}
                remote = np.count_nonzero(outcome.assignment != j)
                assert layers == {l: remote * outcome.widths[l] * 4 for l in range(first, 3)}


@pytest.mark.parametrize("vertices, width, unit, printed", [
    (89_250, 500, 2**20, [170.2, 255.3, 297.9]), (232_965, 602, 2**30, [0.5, 0.8, 0.9]),
    (1_598_960, 200, 2**30, [1.2, 1.8, 2.1]), (2_449_029, 100, 2**30, [0.9, 1.4, 1.6]),
], ids=["flickr", "reddit", "amazon", "ogbn-products"])  # fmt: skip
def test_two_caches_of_the_inputs_width_take_what_table_6_prints(vertices, width, unit, printed):
    for parts, expected in zip((2, 4, 8), printed):
        sizes = [len(rows) for rows in np.array_split(np.arange(vertices), parts)]
        comm, shard = SimpleNamespace(rank=0), SimpleNamespace(sizes=sizes)
        cache = BlockSystem.empty_blocks(SimpleNamespace(comm=comm, shard=shard, device="meta"), width)
        held = 2 * sum(block.nbytes for block in cache)
        assert round(held / unit, 1) == expected
