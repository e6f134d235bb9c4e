"""`labels=masked`: what it trains, sends and scores, who draws what, and who refuses it."""

import dataclasses

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.core.masked_labels import visible
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from harness.run.prepare import check_supported
from tests import systems
from tests.oracles import bytes as count
from tests.oracles import labels, supergnn
from tests.oracles.samples import random_graph
from tests.pretend.training import trained
from tests.systems import Settings
from tests.test_identity import run_of
from tests.test_input_dropout import losses
from tests.test_plan_dry import assert_alike, dry
from tests.test_systems_oracle_lean import least

MASKED = {"share": 0.4}
EXACT_SUMS = {"_target_": "harness.core.combine.Exact"}
FETCHED = {"features": "refetch"}
TAKE = {"vanilla", "supergnn", "lean", "zero_halo"}


def block_of(name: str, **knobs) -> dict:
    return systems.block(name, **knobs, **({} if name == "zero_halo" else FETCHED))


@pytest.mark.parametrize(
    "name, model, parts, how",
    [
        ("vanilla", "gcn", 1, {}),
        ("vanilla", "sage", 4, {}),
        ("vanilla", "gcn", 4, {"rows": "needed"}),
        ("supergnn", "gcn", 4, {}),
        ("vanilla/cover", "sage", 4, {"combine": EXACT_SUMS}),
        ("zero_halo", "gcn", 4, {}),
    ],
)
def test_it_is_the_oracles_training(pool, name, model, parts, how):
    residual = model == "sage"
    graph = random_graph(5, vertices=30)
    settings = Settings(systems.small(model, 3, 4, residual=residual), epochs=4, labels=MASKED, **how)
    outcome = systems.run(pool, graph, block_of(name), parts, "random" if parts > 1 else "block", settings)
    ids = torch.arange(graph.num_vertices)
    history = labels.train(
        graph,
        outcome.weights[0],
        lambda epoch: visible(ids, MASKED["share"], settings.seed, epoch).numpy(),
        MASKED["share"],
        model=model,
        residual=residual,
        epochs=settings.epochs,
        assignment=outcome.assignment if name == "zero_halo" else None,
        **settings.optimiser,
    )
    systems.assert_trained_alike(outcome, history)
    np.testing.assert_allclose(outcome.scores[-1], list(history.scores.values()))


@pytest.mark.parametrize("name, bits", [("vanilla", 32), ("supergnn", 32), ("supergnn", 4)])
def test_layer_0_sends_and_returns_rows_as_hidden_layers_do(pool, name, bits):
    graph = random_graph(12, vertices=40)
    how = Settings(systems.small("gcn", 3, 9), dtype="float32", epochs=3, labels=MASKED)
    knobs = {} if name == "vanilla" else {"bits": bits}
    outcome = systems.run(pool, graph, block_of(name, **knobs), 2, "random", how)
    given = graph, outcome.assignment, outcome.widths
    want = 4 * int(count.halo_rows(*given[:2]).sum()) * np.array(outcome.widths[:3])
    if name == "supergnn":
        want = supergnn.epoch_bytes(*given, least, bits=bits)
    for epoch in range(how.epochs):
        for way in ("forward", "backward"):
            np.testing.assert_array_equal(systems.bytes_by_layer(outcome, epoch, way), want)


@pytest.mark.parametrize("how", [{"sparse": True}, {"model": "gat"}], ids=str)
def test_four_workers_train_as_one_does(pool, how):
    one, four = (losses(pool, parts=parts, dropout=0.3, labels=MASKED, **how) for parts in (1, 4))
    np.testing.assert_allclose(four, one, rtol=1e-9)


def test_other_weights_are_those_of_a_run_without_it_and_a_stopped_run_goes_on(pool):
    graph, model = random_graph(2, vertices=40), systems.small("sage", 2, 6, dropout=0.3)
    how = Settings(model, epochs=4, dtype="float32", labels=MASKED, scored="every epoch")
    block = block_of("supergnn", bits=8)
    found, resumed, plain = (
        systems.run(pool, graph, block, 3, settings=dataclasses.replace(how, **more))
        for more in ({}, {"stop_at": 2}, {"labels": None})
    )
    assert (resumed.losses, resumed.scores) == (found.losses, found.scores)
    last = found.weights[-1]
    assert all(np.array_equal(resumed.weights[-1][each], last[each]) for each in last)
    first = found.weights[0].pop("label_embedding")
    assert first.shape == (3, 5) and not np.array_equal(first, last["label_embedding"])
    assert found.weights[0].keys() == plain.weights[0].keys()
    assert all(np.array_equal(found.weights[0][each], plain.weights[0][each]) for each in plain.weights[0])


def test_vertices_are_drawn_by_seed_epoch_and_id():
    ids = torch.arange(100_000)
    drawn = [visible(ids, 0.62, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    for each in drawn:
        assert abs(float(each.double().mean()) - 0.62) < 0.01
    for one, other in ((0, 1), (0, 2), (1, 2)):
        both = float((drawn[one] & drawn[other]).double().mean())
        assert abs(both - 0.62**2) < 0.01, "each draw says nothing of another"
    some = torch.tensor([7, 99_999, 3])
    assert torch.equal(visible(some, 0.62, 1, 0), drawn[0][some])


@pytest.mark.parametrize("name, rows", [("vanilla", "needed"), ("supergnn", "all")])
def test_a_dry_run_counts_and_computes_what_a_run_does(pool, name, rows):
    graph, model = random_graph(21, vertices=40), systems.small("sage", 3, dropout=0.5)
    asked = Settings(model, dtype="float32", epochs=3, labels=MASKED, rows=rows)
    outcome = systems.run(pool, graph, block_of(name), 3, settings=asked)
    assert_alike(outcome, dry(block_of(name), asked, systems.shards_of(graph, outcome.assignment, 3)))


def test_on_the_pretended_gpu_it_is_as_on_the_cpu(pool):
    run, cpu = (trained(pool, "vanilla", where=where, labels=MASKED) for where in ("nccl", "cpu"))
    assert (run.losses, run.scores) == (cpu.losses, cpu.scores) and all(run.tallies)


def test_who_does_not_exchange_layer_0_refuses_it_in_a_sentence():
    facts = dataclasses.replace(facts_of("gcn"), labels=True)
    for name in systems.VARIANTS:
        knobs = FETCHED if "features" in systems.block(name) else {}
        reason = make_system(systems.block(name, **knobs)).supports(facts)
        if name in TAKE:
            assert reason is None
        else:
            assert reason.startswith("labels=masked cannot be: ") and reason.endswith("; leave labels out")


def test_what_cannot_be_is_refused_before_a_worker_starts():
    stats = {"symmetric": True, "multilabel": False}
    several = {**stats, "multilabel": True}
    for words, known, says in (
        ((), stats, "features=once keeps .*; give system.features=refetch$"),
        (("system.features=refetch",), several, "vertices of this graph have several labels.*; leave"),
        (("system=lean", "system.extra_work=1"), stats, "give system.extra_work=0$"),
    ):
        with pytest.raises(InputError, match=says):
            check_supported(run_of("labels=masked", *words), known)
    for share in ("0", "1", "-0.5"):
        with pytest.raises(InputError, match=f"^labels.share={share}.* is out of range: give more than 0"):
            run_of("labels=masked", f"labels.share={share}")
