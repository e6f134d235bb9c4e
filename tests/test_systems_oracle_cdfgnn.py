"""CDFGNN equals its paper's equations, epoch by epoch, on random graphs and vertex-cuts: losses, weights,
eps, messages, caches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from harness.dev.conformance.train import make_trainer, snapshot
from tests import systems
from tests.oracles import cdfgnn
from tests.oracles.samples import RUNS, random_graph
from tests.systems import Settings
from tests.variants import REFETCH

COUNTS = ("sent", "saved", "zero", "possible")  # metrics, in rows


@st.composite
def knobs_of(draw) -> dict:
    knobs = {
        "cache": draw(st.sampled_from([True, True, True, False])),
        "quantise": draw(st.sampled_from([True, True, False])),
        "bits": draw(st.sampled_from([4, 8, 8, 2, 16])),
        "scatter": draw(st.sampled_from(["value", "diff", "fp32"])),
        "rule": draw(st.sampled_from(["prose", "literal"])),
        "features": draw(st.sampled_from(["refetch", "once"])),
        "epsilon": draw(st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3])),
    }
    # Steps large enough to be felt within a few epochs, and limits that are met.
    if draw(st.booleans()):
        knobs |= {
            "xi": 0.04,
            "mu1": 0.01,
            "mu2": 0.005,
            "nu1": 0.32,
            "lambda1": 1.3,
            "lambda2": 0.6,
            "momentum": 0.5,
        }
    return knobs


def train(graph, outcome, settings, model: str, knobs: dict) -> cdfgnn.CdfgnnHistory:
    return cdfgnn.train(
        graph,
        outcome.assignment,
        outcome.assignment.masters(),
        outcome.weights[0],
        model=model,
        epochs=settings.epochs,
        **knobs,
        **settings.optimiser,
    )


def assert_as_many_messages(outcome, want: cdfgnn.CdfgnnHistory) -> None:
    """The same rows are sent in every synchronisation; metrics say how many, and why the others are not."""
    for epoch, messages in enumerate(want.messages[: want.certain]):
        sent, metrics = outcome.sent(epoch), [worker["metrics"][epoch] for worker in outcome.workers]
        for (layer, way), expected in messages.items():
            gathered, scattered = (
                sent.get((layer, way, phase), (0, 0))[0] for phase in ("gather", "scatter")
            )
            assert expected.gathered[0] <= gathered <= expected.gathered[1], (epoch, layer, way)
            assert expected.scattered[0] <= scattered <= expected.scattered[1], (epoch, layer, way)
            told = {name: sum(m[layer, f"{name}_{way}"] for m in metrics) for name in COUNTS}
            assert told["sent"] == gathered + scattered and told["possible"] == expected.possible
            assert expected.zeros[0] <= told["zero"] <= expected.zeros[1], (epoch, layer, way)
            assert told["sent"] + told["saved"] + told["zero"] == told["possible"]
        assert sum(name == "sent_forward" for _, name in metrics[0]) == sum(
            way == "forward" for _, way in messages
        )


def assert_as_one(outcome, want: cdfgnn.CdfgnnHistory, cache: bool = True) -> None:
    """Losses, weights, messages and eps; only the epochs in which rounding decides nothing."""
    n = want.certain
    assert len(outcome.losses) == len(want.losses)
    systems.assert_trained_alike(
        replace(outcome, losses=outcome.losses[:n], weights=outcome.weights[: n + 1]),
        replace(want, losses=want.losses[:n], weights_after=want.weights_after[:n]),
    )
    assert_as_many_messages(outcome, want)
    if cache:
        for worker in outcome.workers:
            np.testing.assert_allclose(
                [m[-1, "epsilon"] for m in worker["metrics"][:n]], want.epsilon[:n], rtol=1e-12
            )


@pytest.mark.parametrize("model", ["gcn", "sage"])
@examples(max_examples=10)
@given(knobs=knobs_of(), method=st.sampled_from(["ebv", "hep", "dne", "metis/edges"]), **RUNS)
def test_cdfgnn_equals_its_oracle(pool, model, knobs, method, seed, parts, directed, layers):
    graph = random_graph(seed, vertices=18, directed=directed)
    settings = Settings(model=systems.small(model, layers), epochs=8, seed=seed % 100)
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), parts, method, settings)
    want = train(graph, outcome, settings, model, knobs)
    if not (knobs["cache"] and knobs["quantise"] and knobs["scatter"] == "diff"):
        assert want.certain == settings.epochs
    assert_as_one(outcome, want, knobs["cache"])


@pytest.mark.parametrize("rule", ["prose", "literal"])
def test_the_share_of_messages_and_the_threshold_over_a_longer_run(pool, rule):
    """Long enough that the cache saves most messages, and that eps went up and down."""
    graph = random_graph(8, vertices=40, directed=False)
    knobs = {"epsilon": 0.05, "rule": rule, "mu2": 0.005, **REFETCH}
    settings = Settings(model=systems.small("gcn", 2, 6), epochs=40)
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), 4, settings=settings)
    want = train(graph, outcome, settings, "gcn", knobs)
    assert want.certain == settings.epochs
    assert_as_one(outcome, want)
    steps = np.diff(want.epsilon)
    assert (steps > 0).any() and (steps < 0).any(), "eps moves one way only: the case tests little"
    counts = [sum(m.gathered[0] + m.scattered[0] for m in messages.values()) for messages in want.messages]
    assert min(counts) < 0.5 * counts[0], "the cache saves little: the case tests little"
    last = [messages[1, "backward"] for messages in want.messages]
    assert all(m.zeros[0] == m.zeros[1] > 0.5 * m.possible for m in last), "delta is 0 off training masters"


# --- the invariant, and what the caches hold


def caches(comm, block, model, optimiser, seed, epochs, shard) -> dict:
    """The first weights, and after every epoch each cache with the vertices that its rows belong to."""
    torch.set_default_dtype(torch.float64)
    try:
        trainer = make_trainer(comm, block, model, optimiser, seed, epochs, shard)
        system, first, seen = trainer.system, snapshot(trainer), []
        for epoch in range(epochs):
            trainer.train_epoch(epoch)
            seen.append(
                {
                    key: {name: rows.numpy().copy() for name, rows in each.items()}
                    for key, each in system.rows.items()
                }
            )
        ids = torch.as_tensor(shard.vertices)
        return {
            "weights": first,
            "seen": seen,
            "masters": ids[system.shared].numpy(),
            "mirrors": ids[shard.num_masters :].numpy(),
        }
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "method, knobs",
    [
        ("ebv", {"bits": 4, "epsilon": 0.1}),
        ("hep", {"scatter": "diff", "bits": 4}),
        ("dne", {"scatter": "fp32", "epsilon": 0.3}),
        ("hep", {"quantise": False, "epsilon": 0.1}),
        ("dne", {"features": "once", "rule": "literal"}),
        ("ebv", {"cache": False}),
    ],
    ids=str,
)
def test_a_masters_sum_is_that_of_the_cached_parts_and_both_are_the_oracles(pool, method, knobs):
    graph, settings, knobs = random_graph(17, vertices=24), Settings(epochs=10), {**REFETCH, **knobs}
    edges = systems.assign_edges(graph, method, 3, 0)
    workers = pool.run(
        caches,
        3,
        systems.block("cdfgnn", **knobs),
        settings.model,
        settings.optimiser,
        settings.seed,
        settings.epochs,
        per_worker=list(systems.build_replicas(graph, edges)),
    )
    master = edges.masters()
    want = cdfgnn.train(
        graph, edges, master, workers[0]["weights"], epochs=settings.epochs, **knobs, **settings.optimiser
    )
    assert want.certain == settings.epochs
    shared = np.unique(np.concatenate([worker["mirrors"] for worker in workers]))
    assert len(shared) > 5
    for epoch in range(settings.epochs):
        assert {(int(key.split()[1]), key.split()[0]) for key in workers[0]["seen"][epoch]} == want.total[
            epoch
        ].keys()
        for (layer, way), total in want.total[epoch].items():
            rows = [worker["seen"][epoch][f"{way} {layer}"] for worker in workers]
            sums = np.zeros_like(total)
            for i, worker in enumerate(workers):
                parts, used = want.parts[epoch][layer, way][i], want.used[epoch][layer, way]
                for role in ("master", "mirror"):
                    at = worker[f"{role}s"]
                    np.testing.assert_allclose(rows[i][role], parts[at], rtol=1e-6, atol=1e-12)
                    np.testing.assert_allclose(rows[i][f"{role}_used"], used[at], rtol=1e-6, atol=1e-12)
                    np.add.at(sums, at, rows[i][role])
            for i, worker in enumerate(workers):
                assert (master[worker["masters"]] == i).all()
                np.testing.assert_allclose(rows[i]["sum"], sums[worker["masters"]], atol=1e-12)
                np.testing.assert_allclose(rows[i]["sum"], total[worker["masters"]], rtol=1e-6, atol=1e-12)
