"""PSC-GCN's draws, Theorem 2, the cache's hits, and what is sent."""

from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.partition.build import build_shards
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from systems.parts import sampling
from systems.parts.sampling import Edges
from tests import systems
from tests.oracles import pscgcn as oracle
from tests.oracles.dense import adjacency
from tests.oracles.samples import random_graph
from tests.systems import Settings

SEEDS = st.integers(0, 10_000)


def whole(graph) -> Edges:
    return Edges.of(next(build_shards(graph, np.zeros(graph.num_vertices, np.int32), 1)))


def draws(graph, seed: int):
    """The run's own draws, (t, p [V, V]) -> mask [V, V]: they hang on global ids alone, so one worker's edges
    tell them.
    """
    edges = whole(graph)
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(edges.indptr))

    def mask(t: int, p: np.ndarray) -> np.ndarray:
        drawn = np.zeros(p.shape, bool)
        drawn[rows, edges.columns] = edges.draw(p[rows, edges.columns], (seed << 32) + t)
        return drawn

    return mask


def test_what_the_first_renewal_calls_is_compiled_with_the_edges(monkeypatch):
    loop = numba.njit(sampling._water_fill.py_func)
    monkeypatch.setattr(sampling, "_water_fill", loop)
    edges = whole(random_graph(1, vertices=20))
    (compiled,) = loop.signatures
    edges.probabilities(np.ones(20), 0.5)
    assert loop.signatures == [compiled]


@given(seed=SEEDS, rate=st.floats(0.05, 1.0), zeros=st.floats(0, 1), directed=st.booleans())
def test_probabilities_are_theorem_2s(seed, rate, zeros, directed):
    graph, rng = random_graph(seed, vertices=20, directed=directed), np.random.default_rng(seed)
    edges = whole(graph)
    weight = np.where(rng.random(20) < zeros, 0.0, rng.lognormal(size=20))
    p = edges.probabilities(weight, rate)
    for v in range(20):
        row = slice(edges.indptr[v], edges.indptr[v + 1])
        degree = edges.indptr[v + 1] - edges.indptr[v]
        assert (
            p[row].sum() == pytest.approx(rate * degree)
            and (p[row] >= 0).all()
            and (p[row] <= 1 + 1e-12).all()
        )
        if weight[edges.columns[row]].any():
            np.testing.assert_allclose(
                p[row], oracle.water_filled(weight[edges.columns[row]], rate * degree), atol=1e-12
            )
        else:
            np.testing.assert_allclose(p[row], rate)


def test_draws_happen_as_often_as_p_says():
    graph = random_graph(1, vertices=40)
    edges = whole(graph)
    p = edges.probabilities(np.random.default_rng(0).lognormal(size=40), 0.4)
    share = np.mean([edges.draw(p, key) for key in range(3000)], axis=0)
    assert np.abs(share - p).max() < 5 * 0.5 / 3000**0.5
    np.testing.assert_allclose(edges.inclusion(p), 0)


@pytest.mark.parametrize(
    "policy,features",
    [("inclusion", "refetch"), ("degree", "refetch"), ("random", "refetch"), ("inclusion", "once")],
)
def test_hits_are_those_of_the_kept_vertices_and_misses_are_what_is_sent(pool, policy, features):
    graph, how, tau = random_graph(4, vertices=40), Settings(dtype="float32", epochs=6), 1
    knobs = {"tau": tau, "rate": 0.5, "refresh": 3, "features": features}
    block = systems.block("pscgcn", cache=0.5, policy=policy, **knobs)
    outcome = systems.run(pool, graph, block, 3, settings=how)
    # As many epochs more as the system draws ahead.
    longer = replace(how, epochs=6 + tau)
    history = systems.history(oracle.train, graph, outcome, longer, draws(graph, how.seed), **knobs)
    edges, blocks, widths = adjacency(graph) > 0, outcome.assignment, outcome.widths
    halos, kept = oracle.boundary(edges, blocks), np.zeros((3, 40), bool)
    pairs = [np.count_nonzero(halos[n] & (blocks == m)) for n in range(3) for m in range(3) if n != m]
    for epoch in range(6):
        used, drawn = (oracle.boundary(history.masks[t], blocks) for t in (epoch, epoch + tau))
        held, chosen = kept, features == "refetch" and epoch in ((0, 3) if policy == "inclusion" else (0,))
        if chosen:
            scores = {
                "degree": 3 * [edges.sum(1)],
                "random": 3 * [np.random.default_rng((how.seed, 0)).permutation(40)],
                "inclusion": (
                    oracle.inclusion(history.probabilities[epoch + tau], blocks)
                    if epoch
                    else 3 * [edges.sum(1)]
                ),
            }[policy]
            kept = np.array(
                [oracle.top_k(scores[n], halos[n], round(0.5 * halos[n].sum())) for n in range(3)]
            )
        for n, worker in enumerate(outcome.workers):
            want = {
                (-1, "drawn_edges"): history.masks[epoch][blocks == n].sum() / edges[blocks == n].sum(),
                (-1, "drawn_boundary"): used[n].sum() / halos[n].sum(),
            }
            if features == "refetch":
                want[0, "hit_rate"] = (kept & drawn)[n].sum() / max(drawn[n].sum(), 1)
                if chosen:
                    want[0, "map_bytes"] = 5 * halos[n].sum()
            assert systems.of_the_system(worker["metrics"][epoch]) == pytest.approx(want)
        rows = {(1, "forward", "halo"): drawn.sum(), (1, "backward", "halo"): used.sum()}
        if epoch == 3:
            rows[-1, "forward", "norms"] = halos.sum()
        if features == "once":
            rows[0, "forward", "features"] = halos.sum() * (epoch == 0)
        else:
            rows[0, "forward", "halo"] = (drawn & ~kept).sum()
            rows[0, "backward", "cache"] = halos.sum() * chosen
            rows[0, "forward", "cache"] = (kept & ~held).sum()
        # A bit for every row of every pair of workers; asked an epoch ahead, but before a renewal, and `tau`
        # and two in the first epoch.
        asked = 1 + (epoch % 3 == 0) - (epoch % 3 == 2) + tau * (epoch == 0)
        rows[-1, "forward", "wanted"] = asked * sum(-(-count // 8) for count in pairs)
        # of a row; of others, 4 per value
        size = {(-1, "forward", "norms"): 4, (0, "backward", "cache"): 1, (-1, "forward", "wanted"): 1}
        want = {
            key: (count, count * size.get(key, 4 * widths[key[0]])) for key, count in rows.items() if count
        }
        assert {key: value for key, value in outcome.sent(epoch).items() if key[2] != "weights"} == want


def test_a_run_that_renews_nothing_does_not_depend_on_its_length():
    renewing = [{}, {"sampling": "uniform", "features": "refetch"}]
    other = [
        {"rate": 1.0},
        {"sampling": "uniform"},
        {"sampling": "uniform", "features": "refetch", "cache": 0.0},
    ]
    for knobs in renewing + other:
        follows = make_system(systems.block("pscgcn", **knobs)).traits().follows_epochs
        assert follows == (knobs in renewing), knobs


def test_the_period_is_a_tenth_of_the_run_from_1_to_100_or_what_is_given():
    wanted = {(1, None): 1, (19, None): 1, (20, None): 2, (999, None): 99, (1000, None): 100,
              (3000, None): 100, (50, 7): 7, (50, 5000): 5000}  # fmt: skip
    found = [
        make_system(systems.block("pscgcn", refresh=refresh)).period_of(epochs) for epochs, refresh in wanted
    ]
    assert found == list(wanted.values())


def test_batch_norm_over_drawn_edges_takes_every_vertex_once(pool):
    """Where all edges are drawn, batch norm between the layers is exact training's."""
    graph = random_graph(7)
    model = systems.small(norm="batch")
    drawn, exact = (
        systems.run(pool, graph, systems.block(name, **knobs), 3, settings=Settings(model=model))
        for name, knobs in (("pscgcn", {"tau": 0, "rate": 1.0}), ("vanilla", {}))
    )
    np.testing.assert_allclose(drawn.losses, exact.losses, rtol=1e-9)


def test_more_messages_under_way_than_there_is_room_for_are_refused():
    facts = replace(facts_of("gcn"), layers=2)
    assert make_system(systems.block("pscgcn", tau=255)).supports(facts) is None
    assert "give at most 255" in make_system(systems.block("pscgcn", tau=256)).supports(facts)
