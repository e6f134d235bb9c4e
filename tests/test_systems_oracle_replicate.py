"""Replicate is full-graph training at every setting, and computes and fetches what its costs say."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import replicate
from tests.systems import Settings
from tests.test_needed import OPERATORS_AND_GAT, sparse_graph

KNOBS = {
    "mode": st.sampled_from(["cache", "communicate", "hybrid", "hybrid"]),
    "vertex": st.sampled_from([0, 1, 3]),
    "edge": st.sampled_from([0, 1]),
    "row": st.sampled_from([0, 1, 2, 5]),
    "memory": st.sampled_from([None, None, 0, 2]),
    "features": st.sampled_from(["once", "refetch"]),
}
RUN = {
    "seed": st.integers(0, 10_000),
    "parts": st.integers(1, 4),
    "layers": st.integers(1, 4),
    "directed": st.booleans(),
    "trained": st.integers(1, 8),
    "method": st.sampled_from(["random", "metis"]),
    "rows": st.sampled_from(["needed", "all"]),
    "model": st.sampled_from(OPERATORS_AND_GAT),
}


def drawn(run, weighted=False, **more):
    """Graph and settings of a run."""
    weighted &= run["model"][0] != "gat"
    given = dict(directed=run["directed"], trained=run["trained"], weighted=weighted)
    model = systems.small(run["model"][0], run["layers"], normalisation=run["model"][1])
    return sparse_graph(run["seed"], **given), Settings(model=model, rows=run["rows"], **more)


def trained(pool, graph, how, run, knobs):
    block = systems.block("replicate", **knobs)
    return systems.run(pool, graph, block, run["parts"], run["method"], settings=how)


@settings(max_examples=12)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(RUN), weighted=st.booleans())
def test_at_every_setting_it_is_full_graph_training(pool, knobs, run, weighted):
    graph, how = drawn(run, weighted, epochs=3)
    outcome = trained(pool, graph, how, run, knobs)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))


@settings(max_examples=8)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(RUN))
def test_rows_and_bytes_are_the_closed_form(pool, knobs, run):
    """Of every layer the rows that the oracle's sets have, forward and backward, 4 bytes per value."""
    graph, how = drawn(run, epochs=2, dtype="float32")
    outcome = trained(pool, graph, how, run, knobs)
    prices = {key: value for key, value in knobs.items() if key != "features"}
    needed = run["rows"] == "needed"
    chosen = replicate.choose(graph, outcome.assignment, outcome.widths, needed=needed, **prices)
    for layer in range(1, run["layers"]):
        others = [
            sum(k == layer and outcome.assignment[v] != i for v, k in rows)
            for i, rows in enumerate(chosen[0])
        ]
        got = [worker["metrics"][1][layer, "replicated"] for worker in outcome.workers]
        assert got == others
    fetched = np.array([sum(len(of[layer]) for of in chosen[1]) for layer in range(run["layers"])])
    for epoch in range(2):
        again = knobs["features"] == "refetch" or epoch == 0
        size = 4 * fetched * outcome.widths[:-1]
        want = {"forward": size * np.array([again] + [1] * (run["layers"] - 1)), "backward": size}
        want["backward"][0] = 0
        for way in ("forward", "backward"):
            np.testing.assert_array_equal(systems.bytes_by_layer(outcome, epoch, way), want[way])


def test_where_all_is_computed_workers_meet_for_the_weights_alone(pool):
    graph, how = sparse_graph(5, vertices=30, trained=5), Settings(model=systems.small("gcn", 3), epochs=2)
    outcome = systems.run(pool, graph, systems.block("replicate", mode="cache"), 3, settings=how)
    assert {purpose for _, _, purpose in outcome.sent(0)} == {"features", "weights"}
    for worker in outcome.workers:
        assert {each.name for each in worker["spans"][1][1] if each.kind == "wait"} == {"all_reduce"}
