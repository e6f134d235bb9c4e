"""The oracle of SuperGNN against full-graph training, finite differences and codes by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import bytes as count
from tests.oracles import dense, split, supergnn
from tests.oracles.samples import (
    DEEP,
    OPERATORS,
    assert_gradients_alike,
    case,
    random_blocks,
    random_graph,
    random_weights,
)


def rows_alone(edges):
    return edges.any(0), np.zeros(0, int)


def sums_alone(edges):
    return np.zeros(edges.shape[1], bool), np.flatnonzero(edges.any(1))


def mixed(edges):
    """The row of every second source; sums of what is left."""
    rows = edges.any(0) & (np.arange(edges.shape[1]) % 2 == 0)
    return rows, np.flatnonzero((edges & ~rows).any(1))


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_gradients_are_those_of_the_pass_with_rounding_both_ways(model):
    """By torch: a function whose forward is Q and whose backward is Q of what comes back."""
    graph, blocks = random_graph(1), random_blocks(3, 14, 3)
    weights = random_weights(2, model, widths=DEEP)
    how = dict(bits=2, rows="needed", features="refetch", model=model, epochs=1, lr=0.0)
    run = supergnn.train(graph, blocks, weights, mixed, **how)

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return torch.from_numpy(supergnn.rounded(x.numpy(), 2))

        backward = forward

    operator = dense.operator_of(dense.adjacency(graph), model, "symmetric")
    own = torch.from_numpy(split.split(operator, blocks)[0])
    t = {name: torch.from_numpy(w).requires_grad_() for name, w in weights.items()}
    h = torch.from_numpy(graph.features.astype(np.float64))
    for l, plan in enumerate(supergnn.plans(graph, blocks, 3, mixed, "needed", operator)):
        pairs = [map(torch.from_numpy, pair) for pair in plan.pairs.values() if len(pair[0])]
        summed = own @ h + sum(s @ Rounded.apply(g @ h) for g, s in pairs)
        z = summed @ t[f"layers.{l}.weight"] + t[f"layers.{l}.bias"]
        if model == "sage":
            z = z + h @ t[f"layers.{l}.root"]
        h = z.relu() if l < 2 else z
    train = np.flatnonzero(graph.train)
    loss = torch.nn.functional.cross_entropy(h[train], torch.from_numpy(graph.labels[train]).long())
    loss.backward()
    assert_gradients_alike(run, [loss.item()], [{name: w.grad for name, w in t.items()}])


def test_codes_by_hand():
    x = np.array([[0.0, 1.0, 3.0, 2.5], [7.0, 7.0, 7.0, 7.0], [-1.0, -0.5, 0.1, 5.0]])
    # s = 1, 1 and 2; 2.5, 0.5 / 2 and 1.1 / 2 are 2, 0 and 1
    np.testing.assert_array_equal(supergnn.rounded(x, 2), [[0, 1, 3, 2], [7, 7, 7, 7], [-1, -1, 1, 5]])
    # z = 1.0078125 for 1.005, and s = 1 for 3.002 / 3: what lies below z is z.
    np.testing.assert_array_equal(supergnn.rounded(np.array([[1.005, 4.007]]), 2), [[1.0078125, 4.0078125]])
    assert supergnn.rounded(np.array([[0.1, 1.0]]), 16).tolist() == [[0.10009765625, 1.0]]
    assert [supergnn.message_bytes(3, 9, b) for b in (2, 4, 8, 16, 32)] == [21, 27, 39, 54, 108]


@settings(max_examples=30)
@given(values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20))
def test_bfloat16_is_torchs(values):
    x = np.array(values)
    want = torch.from_numpy(x).float().bfloat16().double().numpy()
    np.testing.assert_array_equal(supergnn.bfloat16(x), want)


def test_bytes_of_an_epoch_count_every_message():
    (graph, blocks, _), _ = case(4, 3, OPERATORS[0])
    rows = count.vanilla(graph, blocks, DEEP, features="refetch", first=True)["bytes"]["forward"]
    np.testing.assert_array_equal(supergnn.epoch_bytes(graph, blocks, DEEP, rows_alone, bits=32), rows)
    few = supergnn.epoch_bytes(graph, blocks, DEEP, rows_alone, bits=2, rows="needed")
    assert (few < rows / 16 * 6).all() and few[-1] < few[1]
    sums = supergnn.epoch_bytes(graph, blocks, DEEP, sums_alone, bits=32)
    edges = dense.adjacency(graph) > 0
    across = [(i, j) for i in range(3) for j in range(3) if i != j]
    want = sum(edges[np.ix_(blocks == i, blocks == j)].any(1).sum() for i, j in across)
    np.testing.assert_array_equal(sums, 4 * want * np.array(DEEP[:3]))
