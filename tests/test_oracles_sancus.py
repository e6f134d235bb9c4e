"""The oracles of SANCUS and SANCUS^q: who broadcasts when, clipping by hand, and what coding changes."""

import math

import numpy as np
import pytest

from tests.oracles import dense, sancus, sanqus
from tests.oracles.samples import case, draw, random_blocks, random_graph, random_weights


def active_epochs(run: sancus.SancusHistory, layer: int, block: int) -> list[int]:
    return [epoch for epoch, active in enumerate(run.active) if active[layer, block]]


@pytest.mark.parametrize("flags", ["layer", "worker"])
def test_schedules_of_the_epoch_rules(flags):
    graph, weights = random_graph(12), random_weights(13)
    assignment = random_blocks(14, graph.num_vertices, 4)
    how = dict(flags=flags, epochs=8, lr=0.02)
    fixed = sancus.train(graph, assignment, weights, staleness="epoch_fixed", bound=1, **how)
    adaptive = sancus.train(graph, assignment, weights, staleness="epoch_adaptive", bound=2, **how)
    for layer in range(2):
        assert [active_epochs(fixed, layer, j) for j in range(4)] == [[0, 2, 4, 6]] * 4  # Figure 14a
        assert [active_epochs(adaptive, layer, j) for j in range(4)] == [
            [0, 3, 6],
            [0, 1, 4, 7],
            [0, 2, 5],
            [0, 3, 6],
        ]
    warm = [
        sancus.train(graph, assignment, weights, staleness=rule, bound=bound, warmup=2, **how)
        for rule, bound in (("epoch_fixed", 1), ("epoch_adaptive", 2), ("variation_gap", math.inf))
    ]
    assert [[active_epochs(run, 1, j) for j in range(3)] for run in warm] == [
        [[0, 1, 2, 4, 6]] * 3,
        [[0, 1, 3, 6], [0, 1, 4, 7], [0, 1, 2, 5]],
        [[0, 1]] * 3,
    ]
    assert fixed.staleness.max() == 1 and adaptive.staleness.max() == 2
    assert [list(v[1]) for v in adaptive.versions[:4]] == [
        [0, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 2, 0],
        [3, 1, 2, 3],
    ]


def test_clipping_by_hand_in_one_layer():
    graph, weights = random_graph(24), random_weights(25, widths=[5, 3])
    blocks = random_blocks(26, graph.num_vertices, 4)
    operator, x = dense.gcn_operator(dense.adjacency(graph), "symmetric"), graph.features.astype(np.float64)
    logits = operator @ x @ weights["layers.0.weight"] + weights["layers.0.bias"]
    delta = dense.loss_and_delta(logits, graph.labels, graph.train, 6)[1]
    norms = [np.linalg.norm(delta[blocks == j]) for j in range(4)]
    th = 0.5 * (min(norms) + max(norms)) / 2  # th √4 lies between the smallest and the largest norm
    for j in range(4):
        delta[blocks == j] *= min(1.0, 2 * th / norms[j]) if norms[j] else 1.0
    how = dict(staleness="epoch_fixed", bound=0, epochs=1, lr=0.02)
    for features in ("refetch", "once"):
        for clip in (dict(clip=th), dict(clip=4 * th, clip_scale="inverse")):
            got = sancus.train(graph, blocks, weights, features=features, **clip, **how).gradients[0]
            np.testing.assert_allclose(got["layers.0.weight"], (operator @ x).T @ delta, atol=1e-12)
            np.testing.assert_allclose(got["layers.0.bias"], delta.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("bits, broadcasts", [(2, True), (8, False)])
def test_a_variation_gap_is_that_to_the_decoded_copy(bits, broadcasts):
    """Features never change, but what two bits lose of them exceeds a bound of a tenth."""
    data, how = case(3, 3, staleness="variation_gap", bound=0.1, features="refetch")
    active = np.array(sanqus.train(*data, draw, bits=bits, **how).active)
    assert active[0].all() and (active[1:, 0] == broadcasts).all()
