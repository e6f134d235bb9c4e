"""ByteGNN beside DistDGL, and its two schedulers by themselves."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.comm.service import ServiceLost
from harness.dev.conformance.checks import same_bits
from systems.parts.tasks import Scheduler, idle, score
from tests import systems
from tests.launching import PATIENCE
from tests.oracles.samples import random_graph
from tests.systems import Settings
from tests.test_systems_oracle_distdgl import sent_of


def test_no_schedule_changes_a_bit_or_a_byte_and_all_train_as_distdgl_does(pool):
    graph, how = random_graph(5, vertices=30), Settings(dtype="float32", epochs=2)
    knobs = {"fanouts": [3, 2], "batch": 2, "features": "refetch", "split": "owner"}
    plain = systems.run(pool, graph, systems.block("distdgl", **knobs), 3, settings=how)
    for scheduling in (
        {"order": "fifo", "task": 1, "threads": 3, "sigma": 0.0},
        {"launch": "fixed", "prefetch": 0, "task": 2, "threads": 1},
        {"launch": "fixed", "prefetch": 30, "task": 512, "threads": 2},
    ):
        outcome = systems.run(pool, graph, systems.block("bytegnn", **knobs, **scheduling), 3, settings=how)
        assert outcome.losses == plain.losses
        for mine, theirs in zip(outcome.workers, plain.workers):
            assert mine["sent"] == theirs["sent"] and any(mine["sent"])
            for _, spans in mine["spans"]:
                assert any(s.kind == "wait" and s.name == "batch" for s in spans)
            for epoch in mine["metrics"]:
                spent = {key: value for key, value in epoch.items() if key[1] in ("nsc_s", "fetch_s")}
                assert epoch[-1, "sampler_s"] == pytest.approx(sum(spent.values())) and spent
                assert {(layer, "nsc_s") for layer in (0, 1)} <= set(spent)
                # A task per step at least; with task=1 one per seed, and one in a step without seeds.
                tasks, seeds, steps = epoch[1, "nsc_tasks"], epoch[-1, "seeds"], epoch[-1, "steps"]
                idle_steps = steps - -(-seeds // knobs["batch"])
                assert tasks >= steps
                assert tasks == seeds + idle_steps or scheduling["task"] != 1
            begun = sum(epoch[-1, "launches"] for epoch in mine["metrics"])
            assert begun == sum(epoch[-1, "steps"] for epoch in mine["metrics"]), "each batch once"


def test_seeds_that_are_drawn_by_themselves_train_alike_and_ask_for_more(pool):
    graph, how = random_graph(5, vertices=90), Settings(dtype="float32", epochs=2)
    knobs, runs = {"fanouts": [3, 2], "batch": 6, "features": "refetch"}, []
    for dedup, task in (("batch", 512), ("task", 6), ("task", 1)):
        block = systems.block("bytegnn", **knobs, dedup=dedup, task=task)
        runs.append(systems.run(pool, graph, block, 3, settings=how))
    whole, *apart = runs
    assert all(same_bits(each, whole) for each in apart)
    sizes = [sum(sum(sent_of(each, epoch).values()) for epoch in range(2)) for each in runs]
    assert sizes[0] == sizes[1] < sizes[2]


def test_the_score_is_algorithm_1s():
    assert [idle(share) for share in (0, 100, 140)] == pytest.approx([100, 0, 0], abs=1e-9)
    assert score(5, 0, 1, 1, 0) == 500, "idle and balanced, a batch every 5 ms at the default sigma"
    assert score(10, 0, 1, 1, 0) == 2 * score(10, 0, 1, 1, 1) == 4 * score(10, 0, 1, 2, 1)
    assert score(8, 50, 3, 2, 4) == pytest.approx(8 * (101 - 101**0.5) * 3 / (2 * 5))


def scheduler(first, steps=4, epochs=1, **changed) -> Scheduler:
    how = {"order": "dag", "launch": "fixed", "depth": 0, "sigma": 500.0, "inflight": False, "threads": 1}
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    return Scheduler(
        comm, lambda number, epoch, step: (epoch, step), first, steps, epochs, **{**how, **changed}
    )


@pytest.mark.parametrize("order", ["dag", "fifo"])
def test_the_oldest_batchs_cheapest_task_is_run_first(order):
    """Of two batches whose tasks are ready before the only thread runs one: both are begun by one `take`,
    under the lock that the thread needs."""
    done, old = [], []

    def first(dag) -> None:
        old.append(dag)
        for cost in (30, 10, 20):
            made.task(dag, cost, lambda cost=cost: done.append((dag.number, cost)))
        if dag.number == 1:
            made.task(old[0], 40, lambda: done.append((0, 40)))

    made = scheduler(first, depth=1, steps=2, order=order)
    assert made.take(0, 0) == (0, 0) and made.take(0, 1) == (0, 1)
    made.close()
    became = [(0, 30), (0, 10), (0, 20), (1, 30), (1, 10), (1, 20), (0, 40)]
    assert done == (sorted(became) if order == "dag" else became)


@given(
    steps=st.integers(1, 3), epochs=st.integers(1, 3), depth=st.integers(0, 4), data=st.data(),
    launch=st.sampled_from(["score", "fixed"]),
)  # fmt: skip
def test_batches_are_begun_and_taken_once_each_in_order(steps, epochs, depth, data, launch):
    """From any step on. A score that is never reached begins a batch where it is asked for, and no other."""
    everything = [(epoch, step) for epoch in range(epochs) for step in range(steps)]
    start = data.draw(st.integers(0, len(everything) - 1))
    begun, taken, most = [], [], 0

    def first(dag) -> None:
        nonlocal most
        begun.append(dag.work)
        most = max(most, len(begun) - len(taken))
        made.task(dag, 1, lambda: made.task(dag, 1, lambda: None))

    made = scheduler(first, steps, epochs, launch=launch, depth=depth, sigma=float("inf"), threads=2)
    for at in everything[start:]:
        taken.append(made.take(*at))  # noqa: PERF401 (`first` reads it)
    made.close()
    assert begun == taken == everything[start:]
    assert most <= 1 + (depth if launch == "fixed" else 0)
    tally = made.take_tally()
    assert tally.begun == tally.taken == len(taken) and made.take_tally().begun == 0


def test_a_score_that_is_always_reached_begins_batches_that_nobody_has_asked_for():
    every = threading.Event()

    def first(dag) -> None:
        if dag.number == 3:
            every.set()
        made.task(dag, 1, lambda: None)

    made = scheduler(first, launch="score", sigma=0.0)
    made.take(0, 0)
    assert every.wait(PATIENCE), "the run's last batch is begun"
    assert [made.take(0, step) for step in (1, 2, 3)] == [(0, 1), (0, 2), (0, 3)]
    made.close()


@pytest.mark.parametrize(
    "error, told",
    [
        (KeyError("vertex"), (ServiceLost, r"worker 0: .* failed in epoch 1, step 2 \(KeyError: 'vertex'\)")),
        (MemoryError("too much"), (MemoryError, "^too much$")),
        (InputError("give less"), (InputError, "^give less$")),
    ],
)
def test_a_task_that_fails_ends_the_run_where_its_batch_is_taken(error, told):
    def fail() -> None:
        raise error

    def first(dag) -> None:
        made.task(dag, 1, fail if dag.number == 1 else lambda: None)

    made = scheduler(first, depth=3)
    assert made.take(0, 0) == (0, 0)
    with pytest.raises(told[0], match=told[1]):
        made.take(0, 1)
    made.close()
