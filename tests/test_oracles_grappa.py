"""The oracle of Grappa against full-graph training and torch's derivatives; who holds what, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import of_pattern
from tests.oracles import dense, grappa
from tests.oracles.graphsaint import vertex_losses
from tests.oracles.samples import CASES, assert_gradients_alike, assert_same_run, case


@settings(max_examples=8)
@given(
    parts=st.integers(1, 2),
    correction=st.sampled_from(["none", "scalar", "shrunk"]),
    seed=CASES["seed"],
    operator=CASES["operator"],
)
def test_with_one_part_or_two_it_is_full_graph_training(parts, correction, seed, operator):
    data, how = case(seed, parts, operator)
    run = grappa.train(*data, correction=correction, period=2, **how)
    assert_same_run(run, dense.train(data[0], data[2], **how))


@pytest.mark.parametrize("correction", ["none", "scalar", "shrunk"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_gradients_are_torchs_of_the_corrected_loss(model, correction):
    """Written from the loss down, a vertex at a time, with lists of neighbours."""
    (graph, blocks, weights), how = case(7, 4, (model, "symmetric"))
    run = grappa.train(graph, blocks, weights, correction=correction, shrink=0.3, **how | {"epochs": 1})
    a = dense.adjacency(graph)
    near = [np.flatnonzero(a[v]) for v in range(len(a))]
    d = [len(each) for each in near]
    t = {name: torch.from_numpy(w).requires_grad_() for name, w in weights.items()}
    x = torch.from_numpy(graph.features.astype(np.float64))

    def row(l, v, parts):
        """H_l of v, as a worker with these parts has it."""
        if l == 0:
            return x[v]
        mine = row(l - 1, v, parts)
        sources = [u for u in near[v] if l == 1 or blocks[u] in parts]
        summed = torch.zeros_like(mine) if model == "sage" else mine / (1 + d[v])
        for u in sources:
            share = d[v] if model == "sage" else np.sqrt((1 + d[v]) * (1 + d[u]))
            summed = summed + row(l - 1, u, parts) / share
        z = summed @ t[f"layers.{l - 1}.weight"] + t[f"layers.{l - 1}.bias"]
        if model == "sage":
            z = z + mine @ t[f"layers.{l - 1}.root"]
        return z.relu() if l < 3 else z

    loss = torch.zeros(()).double()
    for i in range(4):
        parts = {i, (i + 1) % 4}
        seeds = np.flatnonzero(graph.train & (blocks == i))
        if not len(seeds):
            continue
        shares = [sum(blocks[u] in parts for u in near[v]) / d[v] if d[v] else 1.0 for v in seeds]
        alpha = sum(shares) / len(shares)
        factor = {"none": 1.0, "scalar": alpha, "shrunk": 0.7 + 0.3 * alpha}[correction]
        logits = torch.stack([row(3, v, parts) for v in seeds])
        each = vertex_losses(logits, torch.from_numpy(graph.labels[seeds]))
        loss = loss + factor * each.sum() / graph.train.sum()
    loss.backward()
    assert_gradients_alike(run, [loss.item()], [{name: w.grad for name, w in t.items()}])


def test_second_parts_by_hand():
    assert [grappa.second(0, t, 4, 2) for t in range(9)] == [1, 1, 2, 2, 3, 3, 1, 1, 2]
    assert [grappa.second(3, t, 4, 1) for t in range(4)] == [0, 1, 2, 0]
    assert [grappa.second(i, 9, 2, 1) for i in range(2)] == [1, 0]
    assert grappa.second(0, 5, 1, 1) is None


def test_the_correction_by_hand():
    """Of three edges into vertex 0 two begin in K, of one into vertex 1 none; none into vertex 2."""
    edges, k = np.zeros((5, 5), bool), np.array([1, 1, 1, 0, 0], bool)
    edges[0, [1, 2, 3]] = edges[1, 4] = True
    seeds = [np.isin(range(5), some) for some in ([0], [1], [2], [0, 1, 2], [])]
    np.testing.assert_allclose([grappa.alpha(edges, each, k) for each in seeds], [2 / 3, 0, 1, 5 / 9, 1])


def test_bytes_are_features_that_are_new_and_second_parts():
    """A directed ring of four, a part each: what is new is counted."""
    ring = np.roll(np.eye(4, dtype=bool), 1, axis=0)  # v - 1 -> v
    graph, blocks = of_pattern(ring), np.arange(4)
    sizes = [grappa.epoch_bytes(graph, blocks, 4, 2, t) for t in range(7)]
    row, structure = 4 * graph.num_features, 4 * (8 + 4)
    # N(0, t): 3 0 1, then 3 0 1 2, then 2 3 0, then 3 0 1
    assert [size["features"] for size in sizes] == [4 * 2 * row, 0, 4 * row, 0, 0, 0, 4 * row]
    assert [size["structure"] for size in sizes] == [structure, 0, structure, 0, structure, 0, structure]
    two = [grappa.epoch_bytes(graph, blocks // 2, 2, 1, t) for t in range(3)]
    assert two == [{"features": 2 * 2 * row, "structure": 2 * (2 * 8 + 2 * 4)}] + 2 * [
        {"features": 0, "structure": 0}
    ]
