"""Inherited by every system: same seed same bits; stop and resume; an epoch's parts add up; dropout; the
control.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests import systems
from tests.oracles import dense
from tests.oracles.samples import random_graph
from tests.systems import EXACT_VARIANTS, STALE_VARIANTS, Settings, label
from tests.test_systems_exact import is_first

GRAPH = random_graph(3, vertices=30)
WITH_DROPOUT = systems.small("gcn", 3, 5, dropout=0.4)


def settings(**changes) -> Settings:
    return Settings(**{"model": WITH_DROPOUT, "dtype": "float32", "epochs": 8, **changes})


def reported(metrics: dict) -> dict:
    """What a system says of itself, but for what follows a clock: DIGEST-A's server's, a sampler's, and when
    it began which batches."""
    timed = {"server_s", "sampler_s", "sampler_ahead", "nsc_s", "fetch_s", "launches", "queue"}
    return {key: value for key, value in metrics.items() if key[1] not in timed}


@pytest.fixture(scope="module")
def whole(pool):
    """The run of a variant, trained once for all tests."""
    runs = {}

    def run_of(variant):
        if label(variant) not in runs:
            block = systems.block(variant[0], **variant[1])
            runs[label(variant)] = systems.run(pool, GRAPH, block, 3, settings=settings())
        return runs[label(variant)]

    return run_of


@pytest.mark.parametrize("variant", systems.first_often(STALE_VARIANTS, 2, seconds=2))
def test_same_seed_same_bits_and_resume_goes_on_bit_for_bit(pool, whole, variant):
    """And looking on changes nothing: the run that is stopped and goes on is scored in every epoch."""
    once, system = whole(variant), systems.block(variant[0], **variant[1])
    other = systems.run(pool, GRAPH, system, 3, settings=settings(scored="every epoch", stop_at=5))
    assert other.losses == once.losses
    for mine, theirs in zip(once.weights, other.weights):
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    for mine, theirs in zip(once.workers, other.workers):
        assert theirs["sent"] == mine["sent"], "nothing is told or fetched again, and nothing is left out"
        assert [reported(epoch) for epoch in theirs["metrics"]] == [
            reported(epoch) for epoch in mine["metrics"]
        ]


def test_another_seed_is_another_run(pool, whole):
    """Of whatever system: the trainer draws the first weights."""
    other = systems.run(pool, GRAPH, systems.block("vanilla"), 3, settings=settings(seed=4, epochs=1))
    assert other.losses != whole(("vanilla", {})).losses[:1]


@pytest.mark.parametrize("variant", systems.first_often(STALE_VARIANTS, 1, seconds=1))
def test_an_epochs_segments_cover_it_without_gap_or_overlap(whole, variant):
    outcome = whole(variant)
    for worker in outcome.workers:
        for train, spans in worker["spans"]:
            line = [s for s in spans if s.kind != "comm"]
            assert {s.kind for s in line} <= {"compute", "wait", "rest"}
            assert all(a.end == b.start for a, b in zip(line, line[1:]))
            assert sum(s.end - s.start for s in line) == pytest.approx(train, rel=1e-6)
            assert all(s.end >= s.start > 0 for s in spans)
    for epoch in range(8):
        ids = [
            sorted(s.id for s in worker["spans"][epoch][1] if s.kind == "comm") for worker in outcome.workers
        ]
        assert ids[0] and all(other == ids[0] for other in ids), "operations match across workers by id"


@pytest.mark.parametrize("variant", dict(reversed(STALE_VARIANTS)).items(), ids=label)
def test_evaluation_is_exact_whatever_the_system_trains_on(whole, variant):
    """At each system's first knobs: evaluation is none of its own."""
    outcome, a = whole(variant), dense.gcn_operator(dense.adjacency(GRAPH), "symmetric")
    weights = dense.as_float64(outcome.weights[-1])
    logits = dense.forward(a, GRAPH.features.astype(float), weights, "gcn")[1][-1]
    want = [dense.score(logits, GRAPH.labels, mask) for mask in (GRAPH.train, GRAPH.val, GRAPH.test)]
    np.testing.assert_allclose(outcome.scores[-1], want)


def dropped(pool, variant, parts: int, method: str, model: str = "gcn", **settings) -> list[float]:
    how = Settings(model=systems.small(model, 3, 6, dropout=0.4), epochs=4, **settings)
    return systems.run(
        pool, random_graph(2, vertices=40), systems.block(variant[0], **variant[1]), parts, method, how
    ).losses


@pytest.fixture(scope="module")
def alone(pool):
    """Losses of one worker, which has no halo to drop, by model."""
    return {
        model: dropped(pool, ("vanilla", {}), 1, "block", model) for model in systems.models_of("vanilla")
    }


# Models differ in what they drop, systems in how they propagate: every model once, and every system once.
@pytest.mark.parametrize(
    "variant,model",
    [
        *((variant, "gcn") for variant in EXACT_VARIANTS if is_first(variant)),
        *((("vanilla", {}), model) for model in systems.models_of("vanilla") if model != "gcn"),
    ],
    ids=lambda value: value if isinstance(value, str) else label(value),
)
def test_dropout_is_the_same_for_any_number_of_workers(pool, alone, variant, model):
    parts, method = systems.partitions_of(variant[0])[2]
    np.testing.assert_allclose(dropped(pool, variant, parts, method, model), alone[model], rtol=1e-9)


def test_dropout_of_sampled_rows_is_the_same_for_any_number_of_workers(pool):
    """Where some boundary rows are not drawn, those that are keep the masks of their own vertices."""
    variant = ("pscgcn", {"tau": 0, "rate": 0.3, "sampling": "uniform"})
    np.testing.assert_allclose(
        dropped(pool, variant, 3, "random"), dropped(pool, variant, 1, "block"), rtol=1e-9
    )


def test_every_epoch_drops_anew(pool):
    losses = dropped(pool, ("vanilla", {}), 1, "block", optimiser={"lr": 1e-30, "weight_decay": 0.0})
    assert len(set(losses)) == len(losses)


@pytest.fixture(scope="module")
def planted():
    return [systems.planted_graph(seed) for seed in range(5)]


def accuracy(pool, graphs, name: str, knobs: dict) -> tuple[float, float]:
    """Mean test accuracy over the graphs and the half width of its 95 % interval."""
    how = Settings(
        model=systems.small("gcn", 2, 16),
        optimiser={"lr": 0.015, "weight_decay": 5e-4},
        dtype="float32",
        epochs=30,
    )
    scores = [
        systems.run(pool, graph, systems.block(name, **knobs), 4, settings=how).scores[-1][2]
        for graph in graphs
    ]
    return np.mean(scores), stats.t.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / len(scores) ** 0.5


@pytest.fixture(scope="module")
def control(pool, planted):
    return accuracy(pool, planted, "zero_halo", {})


@pytest.mark.parametrize("variant", systems.CONTROL_VARIANTS, ids=label)
def test_a_system_that_uses_remote_rows_beats_the_control(pool, planted, control, variant):
    """Where remote information matters: by more than the seeds' 95 % intervals together."""
    score, half = accuracy(pool, planted, *variant)
    assert score - half > control[0] + control[1], (
        f"{score:.3f} +- {half:.3f} against {control[0]:.3f} +- {control[1]:.3f}"
    )
