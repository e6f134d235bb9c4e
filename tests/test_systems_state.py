"""Inherited by every system: same seed same bits; stop and resume; an epoch's parts add up; dropout."""

import numpy as np
import pytest

from harness.dev.conformance.checks import same_bits
from tests import systems
from tests.oracles import dense
from tests.oracles.samples import random_graph
from tests.systems import EXACT_VARIANTS, STALE_VARIANTS, Outcome, Settings, label
from tests.test_needed import sparse_graph
from tests.test_systems_exact import is_first

GRAPH = random_graph(3, vertices=30)
WITH_DROPOUT = systems.small("gcn", 3, 5, dropout=0.4)


def reported(metrics: dict) -> dict:
    """What a system says of itself, but for what follows a clock: DIGEST-A's server's, a sampler's, and when
    it began which batches."""
    timed = {"server_s", "sampler_s", "sampler_ahead", "nsc_s", "fetch_s", "launches", "queue"}
    return {key: value for key, value in metrics.items() if key[1] not in timed}


def assert_covered(outcome: Outcome) -> None:
    """An epoch's segments cover it without gap or overlap, and operations match across workers by id."""
    for worker in outcome.workers:
        for train, spans in worker["spans"]:
            line = [s for s in spans if s.kind != "comm"]
            assert {s.kind for s in line} <= {"compute", "wait", "rest"}
            assert all(a.end == b.start for a, b in zip(line, line[1:]))
            assert sum(s.end - s.start for s in line) == pytest.approx(train, rel=1e-6)
            assert all(s.end >= s.start > 0 for s in spans)
    for epoch in range(len(outcome.losses)):
        ids = [
            sorted(s.id for s in worker["spans"][epoch][1] if s.kind == "comm") for worker in outcome.workers
        ]
        assert ids[0] and all(other == ids[0] for other in ids)


@pytest.mark.parametrize("variant", systems.first_often(STALE_VARIANTS, 2, seconds=2))
def test_same_seed_same_bits_and_resume_goes_on_bit_for_bit(pool, variant):
    """And looking on changes nothing: the run that is stopped and goes on is scored in every epoch."""
    block, how = systems.block(variant[0], **variant[1]), dict(model=WITH_DROPOUT, dtype="float32", epochs=7)
    once, other = (
        systems.run(pool, GRAPH, block, 3, settings=Settings(**how, **more))
        for more in ({}, {"scored": "every epoch", "stop_at": 4})
    )
    assert same_bits(once, other)
    for mine, theirs in zip(once.workers, other.workers):
        assert theirs["sent"] == mine["sent"], "nothing is told or fetched again, and nothing is left out"
        assert [reported(epoch) for epoch in theirs["metrics"]] == [
            reported(epoch) for epoch in mine["metrics"]
        ]
    assert_covered(once)
    # Evaluation is exact, whatever the system trains on.
    weights, a = dense.as_float64(once.weights[-1]), dense.gcn_operator(dense.adjacency(GRAPH), "symmetric")
    logits = dense.forward(a, GRAPH.features.astype(float), weights, "gcn")[1][-1]
    want = [dense.score(logits, GRAPH.labels, mask) for mask in (GRAPH.train, GRAPH.val, GRAPH.test)]
    np.testing.assert_allclose(once.scores[-1], want)


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


MASKED = {
    "dropout": systems.small("gcn", 3, dropout=0.4, input_dropout=0.2),
    "batch norm and residual": systems.small("sage", 3, norm="batch", residual=True),
    "attention and dropout": systems.small("gat", 3, dropout=0.4),
}


@pytest.mark.parametrize("model", MASKED.values(), ids=MASKED)
def test_who_computes_for_others_has_vanillas_masks_and_statistics(pool, model):
    """The sender of a partial sum, and who computes a row again, drop what the reader of the rows would."""
    graph, whole = sparse_graph(5, vertices=30, trained=5), "all" if "norm" in model else None
    how = Settings(model=model, epochs=4, rows=whole)
    plain = systems.run(pool, graph, systems.block("vanilla"), 3, settings=how)
    lean = {"bits": 32, "extra_work": 0 if model["name"] == "gat" else 1}
    for name, knobs in (("lean", lean), ("replicate", {"mode": "hybrid", "row": 2})):
        found = systems.run(pool, graph, systems.block(name, **knobs), 3, settings=how)
        np.testing.assert_allclose(found.losses, plain.losses, rtol=1e-9)
        assert found.scores == plain.scores
