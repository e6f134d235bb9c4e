"""The oracle of Sylvie against those of AdaQP and PipeGCN, and its period."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import adaqp, dense, pipegcn, sylvie
from tests.oracles.samples import (
    OPERATORS,
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)

DEEP = [5, 4, 4, 3]
FINE = 48  # bits without an error that shows
CASES = {
    "seed": st.integers(0, 10**6),
    "parts": st.integers(1, 4),
    "operator": st.sampled_from(OPERATORS),
    "features": st.sampled_from(["once", "refetch"]),
}


def draw(epoch, layer, direction, sender, shape):
    return np.random.default_rng([epoch, layer, direction == "backward", sender]).random(shape)


def case(seed, parts, operator, features="once"):
    """Graph, assignment and weights; and what every oracle takes by name."""
    graph = random_graph(seed)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    how = dict(model=operator[0], normalisation=operator[1], epochs=5, lr=0.02, weight_decay=0.01)
    return (graph, blocks, random_weights(seed, operator[0], widths=DEEP)), how | {"features": features}


@settings(max_examples=8)
@given(bits=st.sampled_from([2, 4, 8]), **CASES)
def test_synchronous_it_is_adaqp_with_as_many_bits(bits, seed, parts, operator, features):
    data, how = case(seed, parts, operator, features)
    run = sylvie.train(*data, draw, bits=bits, mode="synchronous", period=2, **how)
    assert_same_run(run, adaqp.train(*data, draw, bits=bits, **how))


@settings(max_examples=8)
@given(**CASES)
def test_with_fine_rows_and_no_period_it_is_pipegcn(seed, parts, operator, features):
    data, how = case(seed, parts, operator, features)
    assert_same_run(
        sylvie.train(*data, draw, bits=FINE, period=0, **how), pipegcn.train(*data, **how), rtol=1e-8
    )


@settings(max_examples=8)
@given(**CASES)
def test_with_fine_rows_and_a_period_of_one_it_is_full_graph_training(seed, parts, operator, features):
    data, how = case(seed, parts, operator, features)
    run = sylvie.train(*data, draw, bits=FINE, period=1, **how)
    del how["features"]
    assert_same_run(run, dense.train(data[0], data[2], **how), rtol=1e-8)


def test_rows_are_of_this_epoch_where_the_period_says_so_and_else_of_the_one_before():
    """With weights that never change and one quantised layer, losses differ by the draws of its rows."""
    (graph, blocks, _), how = case(3, 3, OPERATORS[0])
    how |= {"lr": 0.0, "epochs": 7}

    def losses(draw, **knobs):
        return sylvie.train(graph, blocks, random_weights(3), draw, bits=4, **knobs, **how).losses

    used = [0, 0, 1, 3, 3, 4, 6]
    want = losses(lambda epoch, *rest: draw(used[epoch], *rest), mode="synchronous")
    np.testing.assert_allclose(losses(draw, period=3), want, rtol=1e-10)
    assert len(set(np.round(want, 9))) == len(set(used))


def test_every_knob_changes_the_run():
    data, how = case(3, 3, OPERATORS[0])
    how["epochs"] = 6
    knobs = [{}, dict(bits=2), dict(mode="synchronous"), dict(period=0), dict(period=2)]
    knobs.append(dict(features="refetch"))
    runs = [sylvie.train(*data, draw, **how | k) for k in knobs]
    for i, one in enumerate(runs):
        assert all(differs(one, other) for other in runs[:i]), knobs[i]
