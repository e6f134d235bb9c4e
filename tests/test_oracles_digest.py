"""The oracle of DIGEST-A against that of DIGEST, and rounds that came too late."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import digest
from tests.oracles.samples import DEEP, assert_same_run, differs, random_blocks, random_graph, random_weights


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    interval=st.integers(1, 3),
    init=st.sampled_from(["exact", "zeros"]),
    loss=st.sampled_from(["partition", "global"]),
    model=st.sampled_from(["gcn", "sage"]),
)
def test_arrivals_in_lockstep_scaled_by_one_over_m_are_digest(seed, parts, interval, init, loss, model):
    graph, weights = random_graph(seed), random_weights(seed, model, widths=DEEP)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    how = dict(interval=interval, init=init, loss=loss, model=model, lr=0.02, weight_decay=0.01)
    order = np.random.default_rng(seed)
    arrivals = [(int(m), r * parts) for r in range(5) for m in order.permutation(parts)]
    run = digest.train_async(graph, blocks, weights, arrivals, update="delta", scale=1 / parts, **how)
    rounds = digest.train(graph, blocks, weights, epochs=5, agg="mean", **how)
    for r in range(5):
        for name in weights:
            np.testing.assert_allclose(
                run.weights_after[r * parts + parts - 1][name],
                rounds.weights_after[r][name],
                rtol=1e-9,
                atol=1e-12,
            )
    np.testing.assert_allclose(run.logits, rounds.logits, rtol=1e-8, atol=1e-10)
    assert run.delays == 5 * list(range(parts))


@pytest.mark.parametrize("update", ["gradient", "delta"])
def test_a_round_that_came_too_late_changes_nothing_but_what_others_read_of_it(update):
    graph, weights = random_graph(16), random_weights(17)
    blocks = random_blocks(18, graph.num_vertices, 2)
    how = dict(interval=1, init="zeros", lr=0.02, update=update)
    arrivals, late = [(0, 0), (1, 0, {1: [1, 0]}), (0, 2)], [(1, 2, {1: [0, 0]})]
    alone = digest.train_async(graph, blocks, weights, arrivals, **how)
    assert_same_run(digest.train_async(graph, blocks, weights, arrivals, late=late, **how), alone)
    # The last arrival has read what part 1 pushed in its second round, which the server did not take in.
    read = [*arrivals[:2], (0, 2, {1: [0, 2]})]
    run = digest.train_async(graph, blocks, weights, read, late=late, **how)
    assert run.read[2] == {1: [0, 2]} and run.losses[:2] == alone.losses[:2] and differs(run, alone)
