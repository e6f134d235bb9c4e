"""DistDGL and ByteGNN against an oracle that draws and counts by itself, and DistDGL's two exact knobs."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comm import pulls
from harness.dev.conformance.runs import make_trainer
from systems.parts.feature_cache import kept_ids
from systems.parts.seeds import Seeds
from tests import systems
from tests.graphs import edge_list
from tests.oracles import bytes as count
from tests.oracles import distdgl, halo
from tests.oracles.samples import graph_of_kind, random_graph
from tests.systems import Settings, shards_of

SEEDS = st.integers(0, 10_000)


def steps_of(graph, assignment, parts: int, epochs: int, seed: int, knobs: dict) -> list:
    """[epoch][step][worker] global ids of the seeds."""
    names = np.argsort(assignment, kind="stable")  # names in the order of workers, ascending inside one
    training = np.flatnonzero(graph.train[names])
    counts = np.bincount(assignment[graph.train], minlength=parts)
    split, batches = knobs.get("split", "even"), knobs.get("batches", "worker")
    how = seed, split, batches, knobs["batch"], knobs.get("drop_last", False)
    workers = [Seeds(training, names[training], counts, i, *how) for i in range(parts)]
    return [
        [[names[worker.of(epoch, step)[0]] for worker in workers] for step in range(workers[0].steps)]
        for epoch in range(epochs)
    ]


def sent_of(outcome, epoch: int) -> Counter:
    """(layer, purpose) -> bytes, without what both services book apart."""
    found = Counter()
    for (layer, _, purpose), (_, size) in outcome.sent(epoch).items():
        if purpose not in ("weights", "counts"):
            found[layer, purpose] += size
    return found


def assert_booked(outcome, want: distdgl.History, steps: list) -> None:
    """Bytes and what workers tell of themselves are the oracle's; a step sums its gradients in float64."""
    parts, parameters = len(outcome.workers), sum(w.size for w in outcome.weights[0].values())
    for epoch, taken in enumerate(steps):
        assert sent_of(outcome, epoch) == +want.sent[epoch]
        reported = [worker["metrics"][epoch] for worker in outcome.workers]
        assert {each[-1, "steps"] for each in reported} == {len(taken)}
        for name, rows in (("pulled", want.pulled), ("remote", want.remote)):
            assert not rows or sum(each[-1, name] for each in reported) == rows[epoch]
        if parts > 1:
            size = outcome.sent(epoch)[-1, "backward", "weights"][1]
            assert size == len(taken) * 2 * count.all_reduce(parameters, parts)


# Knobs that one of the two has alone.
OWN = {
    "distdgl": {
        "service": st.sampled_from(["shared", "exchange"]),
        "scale": st.sampled_from(["global", "block"]),
        "redraw": st.sampled_from(["hop", "vertex"]),
        "loss": st.sampled_from(["global", "worker"]),
    },
    "bytegnn": {
        "dedup": st.sampled_from(["batch", "task"]),
        "order": st.sampled_from(["dag", "fifo"]),
        "launch": st.sampled_from(["score", "fixed"]),
        "sigma": st.sampled_from([0.0, 500.0]),
        "prefetch": st.integers(0, 3),
        "task": st.sampled_from([1, 2, 512]),
        "threads": st.integers(1, 3),
    },
}
ORACLES = ("scale", "features", "redraw", "replace", "key", "loss")


@pytest.mark.parametrize("name", OWN)
@settings(max_examples=10)
@given(
    seed=SEEDS,
    parts=st.integers(1, 4),
    directed=st.booleans(),
    model=st.sampled_from(["gcn", "sage"]),
    fanouts=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    kind=st.sampled_from(["plain", "multilabel", "weighted"]),
    knobs=st.fixed_dictionaries({
        "batch": st.integers(1, 4),
        "batches": st.sampled_from(["worker", "global"]),
        "split": st.sampled_from(["even", "owner"]),
        "features": st.sampled_from(["once", "refetch"]),
        "replace": st.booleans(),
        "key": st.sampled_from(["vertex", "worker"]),
    }),
    drop_last=st.booleans(),
    own=st.data(),
)  # fmt: skip
def test_losses_weights_and_bytes_equal_the_oracle(
    pool, name, seed, parts, directed, model, fanouts, kind, knobs, drop_last, own
):
    graph = graph_of_kind(kind, seed, directed)
    whole = knobs["batch"] * parts <= int(graph.train.sum())  # some batch is
    knobs["drop_last"] = drop_last and whole
    knobs |= own.draw(st.fixed_dictionaries(OWN[name]))
    shape = systems.small(model, len(fanouts))
    how = Settings(model=shape, seed=seed % 100, epochs=2)
    outcome = systems.run(pool, graph, systems.block(name, fanouts=fanouts, **knobs), parts, settings=how)
    steps = steps_of(graph, outcome.assignment, parts, how.epochs, how.seed, knobs)
    given_too = {knob: value for knob, value in knobs.items() if knob in ORACLES}
    given_too |= {"fanouts": fanouts, "model": model, "seed": how.seed}
    given_too["alone"] = knobs["task"] if knobs.get("dedup") == "task" else None
    label = 3 if kind == "multilabel" else 4
    want = systems.history(distdgl.train, graph, outcome, how, steps, label=label, **given_too)
    systems.assert_trained_alike(outcome, want, rtol=1e-6)
    assert_booked(outcome, want, steps)


@pytest.mark.parametrize("model, draws", [("gcn", {}), ("gat", {"replace": True})])
def test_with_global_batches_the_number_of_workers_changes_nothing_but_rounding(pool, model, draws):
    graph = random_graph(4, vertices=40, directed=False)
    how = Settings(model=systems.small(model, 3, dropout=0.4), epochs=3)
    knobs = {"fanouts": [3, 2, 2], "batches": "global", **draws}
    alone = systems.run(pool, graph, systems.block("distdgl", batch=4, **knobs), 1, "block", how)
    for parts, method, batch, split in ((2, "metis", 2, "even"), (4, "random", 1, "owner")):
        block = systems.block("distdgl", batch=batch, split=split, **knobs)
        systems.assert_trained_as(systems.run(pool, graph, block, parts, method, how), alone)


def test_both_services_give_the_same_bits_and_bytes_but_for_the_counts_that_are_exchanged(pool):
    graph, outcomes = random_graph(5, vertices=30), {}
    how = Settings(dtype="float32", epochs=3)
    for service, transport in (("shared", "memory"), ("exchange", "memory"), ("exchange", "sockets")):
        block = systems.block("distdgl", fanouts=[3, 2], batch=2, service=service)
        outcomes[transport, service] = systems.run(pool, graph, block, 3, settings=how, transport=transport)
    shared, exchanged, over_sockets = outcomes.values()
    assert shared.losses == exchanged.losses == over_sockets.losses
    assert [exchanged.sent(epoch) for epoch in range(3)] == [over_sockets.sent(epoch) for epoch in range(3)]
    for epoch in range(3):
        assert sent_of(shared, epoch) == sent_of(exchanged, epoch) and sent_of(shared, epoch)
        steps = shared.workers[0]["metrics"][epoch][-1, "steps"]
        counts = sum(
            size for (_, _, purpose), (_, size) in exchanged.sent(epoch).items() if purpose == "counts"
        )
        assert counts == steps * 8 * 3 * 2 * 4, "8 bytes per ordered pair for two hops, features and labels"


def test_drawing_ahead_changes_no_bit_and_no_byte_and_is_booked_where_it_is_used(pool):
    graph, outcomes = random_graph(5, vertices=30), {}
    how = Settings(dtype="float32", epochs=3)
    for ahead in (0, 1, 50):  # 50: more than the run has steps
        block = systems.block("distdgl", fanouts=[3, 2], batch=2, prefetch=ahead)
        outcomes[ahead] = systems.run(pool, graph, block, 3, settings=how)
    plain = outcomes.pop(0)
    for outcome in outcomes.values():
        assert outcome.losses == plain.losses
        for mine, theirs in zip(outcome.workers, plain.workers):
            assert mine["sent"] == theirs["sent"]
            for (_, spans), (_, before) in zip(mine["spans"], theirs["spans"]):
                taken, were = (
                    [s for s in each if s.name == "pull" and s.kind == "comm"] for each in (spans, before)
                )
                assert sorted((s.layer, s.bytes) for s in taken) == sorted((s.layer, s.bytes) for s in were)
                assert len({s.id for s in taken}) == len(taken) and sum(s.bytes for s in taken) > 0
                assert any(s.kind == "wait" and s.name == "batch" for s in spans)
                assert not any(s.name == "sample" for s in spans), "the training thread draws nothing"
    assert all(epoch[-1, "sampler_s"] > 0 for worker in outcomes[50].workers for epoch in worker["metrics"])


def test_a_thread_that_draws_books_reads_of_other_workers_alone(monkeypatch):
    """Time stands still but while lists are read, a second per row."""
    now, arrays = [0.0], [{"rows": np.arange(9)}] * 3
    monkeypatch.setattr(pulls.time, "monotonic", lambda: now[0])

    def draw(owned, rows, asker):
        now[0] += len(rows)
        return np.ones(len(rows), np.int32), owned["rows"][rows][:, None]

    def drawn(rank: int, number: int):
        peers = [p for p in range(number) if p != rank]
        beside = pulls.Beside(SimpleNamespace(rank=rank, size=number, peers=peers), arrays[:number])
        asked = [np.arange(2 + p) for p in range(number)]
        lists = beside.lists(draw, lambda counts: counts, asked, pulls.Purpose("sample", "neighbours", 1))
        assert [items[:, 0].tolist() for _, items in lists] == [rows.tolist() for rows in asked]
        return beside.take_reads()

    (read,) = drawn(rank=1, number=3)
    assert (read.end - read.start, [taken[:2] for taken in read.taken]) == (2 + 4, [(0, 2), (2, 4)])
    assert drawn(rank=0, number=1) == []


@pytest.mark.parametrize("remote, model", [("zero", "gcn"), ("drop", "sage")])
@pytest.mark.parametrize("name, knobs", [("distdgl", {"split": "owner"}), ("bytegnn", {"task": 4})])
def test_without_remote_vertices_the_exact_knob_is_the_control(pool, name, knobs, remote, model):
    graph = random_graph(6, vertices=24)
    how = Settings(model=systems.small(model, 3))
    block = systems.block(name, fanouts=None, batch=None, remote=remote, **knobs)
    outcome = systems.run(pool, graph, block, 3, settings=how)
    oracle = halo.zero_halo if remote == "zero" else halo.local
    want = systems.history(oracle, graph, outcome, how, model=model)
    systems.assert_trained_alike(outcome, want)
    assert {purpose for epoch in range(5) for _, _, purpose in outcome.sent(epoch)} == {"weights"}


def test_attention_over_leaves_is_zero_halos(pool):
    """Neighbours whose rows are 0 take their part of the softmax, as in the control for full batches."""
    graph = random_graph(6, vertices=24)
    how = Settings(model=systems.small("gat", dropout=0.4))
    block = systems.block("distdgl", fanouts=None, batch=None, split="owner", remote="zero")
    want = systems.run(pool, graph, systems.block("zero_halo"), 3, settings=how)
    outcome = systems.run(pool, graph, block, 3, settings=how)
    systems.assert_trained_as(outcome, want)


def test_a_cache_changes_no_bit_and_saves_what_it_holds(pool):
    graph, how = random_graph(7, vertices=40), Settings(dtype="float32", epochs=3)
    knobs = {"fanouts": [3, 2], "batch": 2, "features": "refetch"}
    plain = systems.run(pool, graph, systems.block("distdgl", **knobs), 3, settings=how)
    for policy in ("degree", "random", "frequency"):
        block = systems.block("distdgl", **knobs, cache=0.5, policy=policy)
        cached = systems.run(pool, graph, block, 3, settings=how)
        assert cached.losses == plain.losses
        held = sum(round(0.5 * int((cached.assignment != part).sum())) for part in range(3))
        for epoch in range(how.epochs):
            asked, pulled = (
                sum(worker["metrics"][epoch][-1, "pulled"] for worker in each.workers)
                for each in (plain, cached)
            )
            rows = cached.sent(epoch)[0, "forward", "features"][0]
            assert rows == pulled + (held if epoch == 0 else 0)
            assert cached.sent(epoch)[0, "forward", "ids"][1] == 4 * rows
            assert pulled < asked or (epoch == 0 and policy == "frequency")


def test_at_a_cache_of_everything_nothing_is_pulled_after_it_is_filled(pool):
    how = Settings(dtype="float32", epochs=2)
    block = systems.block("distdgl", fanouts=[3, 2], batch=2, features="refetch", cache=1.0)
    outcome = systems.run(pool, random_graph(7, vertices=30), block, 3, settings=how)
    assert outcome.sent(0)[0, "forward", "features"][0] == 2 * 30
    assert not any(purpose in ("features", "ids") for _, _, purpose in outcome.sent(1))


def kept_features(comm, block, how, shard):
    """The global ids whose features a worker keeps after an epoch, and how often each [V] was an input
    in it."""
    trainer = make_trainer(comm, block, how, shard)
    system = trainer.system
    asked, structure = np.zeros(len(system.names.ids), int), system.structure

    def counted(epoch, step):
        drawn = structure(epoch, step)
        asked[system.names.ids[drawn.inputs]] += 1
        return drawn

    system.structure = counted
    trainer.train_epoch(0)
    found = system.names.ids[system.kept.names_kept()].tolist()
    trainer.closing.close()
    return found, asked


@pytest.mark.parametrize("policy", ["degree", "frequency"])
def test_a_cache_keeps_those_that_its_policy_says(pool, policy):
    graph, assignment = random_graph(7, vertices=40, directed=True), np.arange(40) % 3
    knobs = {"fanouts": [3, 2], "batch": 2, "features": "refetch", "cache": 0.25, "policy": policy}
    shards = shards_of(graph, assignment, 3)
    source, target = edge_list(graph)
    out_degrees = np.bincount(source[source != target], minlength=40)
    answers = pool.run(kept_features, 3, systems.block("distdgl", **knobs), Settings(), per_worker=shards)
    for worker, (found, asked) in enumerate(answers):
        score = out_degrees if policy == "degree" else asked
        remote = np.flatnonzero(assignment != worker)
        assert len(found) == round(0.25 * len(remote))
        left = np.setdiff1d(remote, found)
        assert score[found].min() >= score[left].max() and score[found].sum() > 0


def test_a_cache_keeps_the_highest_scores_ties_by_name():
    names = SimpleNamespace(ids=np.arange(6), own=lambda ids: ids < 2, rank=0)
    assert kept_ids(names, 0.5, np.array([9, 9, 1, 5, 3, 5]), 0).tolist() == [3, 5]
