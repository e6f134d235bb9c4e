"""What CaPGNN's joint cache sends, its bound on staleness, and Algorithm 1."""

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from harness.base.errors import InputError
from systems.capgnn import Capgnn
from tests import systems
from tests.oracles import bytes as count
from tests.oracles import capgnn
from tests.oracles.samples import random_graph
from tests.systems import Settings

CACHES = [
    ("jaca", "inclusive"),
    ("jaca", "exclusive"),
    ("fifo", "inclusive"),
    ("lru", "inclusive"),
    ("low_overlap", "inclusive"),
]
NAMES = ("lookups", "local_hits", "global_hits", "refreshed", "misses")


def assert_same_counts(outcome, history, first_layer: int) -> None:
    """Every tier's hits and the oldest row, by worker, layer and epoch."""
    for i, worker in enumerate(outcome.workers):
        for epoch, (counts, metrics) in enumerate(zip(history.counts, worker["metrics"])):
            assert sorted(counts) == list(range(first_layer, len(outcome.widths) - 1))
            for l, named in counts.items():
                for name in (*NAMES, "staleness") if l else NAMES:
                    assert metrics[l, name] == named[name][i], (i, epoch, l, name)
                if lookups := named["lookups"][i]:
                    rate = (named["local_hits"][i] + named["global_hits"][i]) / lookups
                    between = None if named["renewing"][i] else rate
                    assert metrics[l, "hit_rate"] == rate
                    assert metrics.get((l, "hit_rate_between_refreshes")) == between


def assert_sent(outcome, history, policy: str, value: int) -> None:
    """Rows and bytes of every epoch, features that are fetched once apart; `value`: bytes of a number."""
    row_bytes, apart = [value * width for width in outcome.widths], ("weights", "features")
    for epoch in range(len(history.counts)):
        sent = {key: both for key, both in outcome.sent(epoch).items() if key[2] not in apart}
        assert sent == sent_by_definition(history, epoch, row_bytes, policy), epoch
        assert copied(outcome, epoch) == copied_by_definition(history, epoch, row_bytes), epoch


def sent_by_definition(history, epoch: int, row_bytes: list[int], policy: str) -> dict:
    """(layer, direction, purpose) -> rows and bytes of an epoch, all workers together, by what the tiers hold
    and what is told.
    """
    lookups = next(iter(history.counts[0].values()))["lookups"]
    parts, want = len(lookups), {}
    for l, named in history.counts[epoch].items():
        for way, purpose, rows in [
            ("forward", "halo", named["direct"]),
            ("backward", "halo", named["returned"]),
            ("forward", "global_get", named["got"]),
        ]:
            want[l, way, purpose] = (int(rows.sum()), int(rows.sum()) * row_bytes[l])
        # each tells each, in a byte, that its rows are there
        flags = parts * (parts - 1) * bool(named["renewed"].any())
        want[l, "forward", "flags"] = (flags, flags)
    ids = messages = 0
    if epoch == 0:  # the halo, and how much of it is whose
        ids, messages = int(lookups.sum()), parts * parts
    if policy in ("fifo", "lru"):  # what was looked up in vain, and how much that is
        ids, messages = ids + int(history.failed[epoch].sum()), messages + parts
    rows = ids + (parts if policy in ("fifo", "lru") else 0)
    want[-1, "forward", "ids"] = ((parts - 1) * rows, (parts - 1) * (4 * ids + 8 * messages))
    return {key: value for key, value in want.items() if value[1]}


def copied(outcome, epoch: int) -> dict:
    """(layer, name) -> bytes of the spans that copy to and from the global tier, all workers together."""
    total: dict = {}
    for span in (span for worker in outcome.workers for span in worker["spans"][epoch][1]):
        if span.kind == "comm" and span.name.startswith("global_"):
            total[span.layer, span.name] = total.get((span.layer, span.name), 0) + span.bytes
    return {key: size for key, size in total.items() if size}


def copied_by_definition(history, epoch: int, row_bytes: list[int]) -> dict:
    """What owners put there and readers take. The put is in no count of `sent`; its span tells of it."""
    want = {}
    for l, named in history.counts[epoch].items():
        want[l, "global_put"] = int((named["renewed"] + named["taken"]).sum()) * row_bytes[l]
        want[l, "global_get"] = int(named["got"].sum()) * row_bytes[l]
    return {key: size for key, size in want.items() if size}


@pytest.mark.parametrize(
    "policy, tiers, pipeline, gradients",
    [
        ("jaca", "inclusive", True, "fresh"),
        ("jaca", "exclusive", False, "fresh"),
        ("lru", "inclusive", True, "exact"),
    ],
)
def test_no_row_is_older_than_the_refresh(pool, policy, tiers, pipeline, gradients):
    local = 20 if tiers == "exclusive" else 28  # so that each tier is hit and missed
    block = systems.block(
        "capgnn", rapa=False, policy=policy, tiers=tiers, local_capacity=local, global_capacity=9, refresh=3,
        pipeline=pipeline, gradients=gradients, features="refetch",
    )  # fmt: skip
    how = Settings(model=systems.small("gcn", 3, 6), dtype="float32", epochs=8)
    outcome = systems.run(pool, random_graph(8, vertices=40), block, 4, settings=how)
    told = [epoch for worker in outcome.workers for epoch in worker["metrics"]]
    oldest = max(epoch.get((layer, "staleness"), 0) for epoch in told for layer in (1, 2))
    assert oldest == (3 if pipeline else 2)  # T - 1, and one more through the pipeline


@examples(max_examples=6)
@given(
    tiers=st.sampled_from(["inclusive", "exclusive"]),
    features=st.sampled_from(["refetch", "once"]),
    local=st.integers(0, 16),
    shared=st.integers(0, 20),
    refresh=st.sampled_from([1, 2, 3]),
    pipeline=st.booleans(),
    seed=st.integers(0, 10_000),
    parts=st.integers(2, 4),
)
def test_bytes_are_a_closed_form_of_the_halos_and_of_what_local_tiers_hold(
    pool, tiers, features, local, shared, refresh, pipeline, seed, parts
):
    """By default: the gradients of all halo rows every epoch, and a row counted once per receiving worker."""
    graph = random_graph(seed, vertices=20)
    model = systems.small("gcn", 3, 6)
    settings = Settings(model=model, dtype="float32", epochs=5)
    block = systems.block(
        "capgnn", rapa=False, features=features, tiers=tiers, local_capacity=local, global_capacity=shared,
        refresh=refresh, pipeline=pipeline,
    )  # fmt: skip
    outcome = systems.run(pool, graph, block, parts, settings=settings)
    for epoch in range(settings.epochs):
        have = {"forward": [0] * 3, "backward": [0] * 3}
        for (layer, direction, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose in ("halo", "global_get", "features"):
                have[direction][layer] += size
        cache = {"local_capacity": local, "features": features, "refresh": refresh, "epoch": epoch}
        want = count.jaca(graph, outcome.assignment, outcome.widths, **cache)
        assert have == {direction: sizes.tolist() for direction, sizes in want.items()}


@examples(max_examples=8)
@given(
    seed=st.integers(0, 10_000),
    top_k=st.sampled_from([-1, 1, 3]),
    features=st.sampled_from(["refetch", "once"]),
    room=st.lists(st.floats(0.0, 20.0), min_size=4, max_size=4),
    host=st.floats(0.0, 30.0),
)
def test_capacities_are_algorithm_1s(pool, seed, top_k, features, room, host):
    """Room for about so many vertices over the reserves."""
    graph = random_graph(seed, vertices=24)
    settings = Settings(epochs=1)
    widths = [graph.num_features, 4][1 if features == "once" else 0 :]
    gib = lambda vertices, reserved: (reserved + (vertices + 0.25) * 4 * sum(widths) / 2**20) / 1024
    memory, host_memory = [gib(vertices, 64) for vertices in room], gib(host, 32)
    settings.cluster = {"devices": [{"memory_gb": m} for m in memory], "host_memory_gb": host_memory}
    block = systems.block(
        "capgnn", rapa=False, top_k=top_k, features=features, reserved_device_mb=64, reserved_host_mb=32
    )
    outcome = systems.run(pool, graph, block, 4, settings=settings)
    local, shared = capgnn.capacities(graph, outcome.assignment, widths, memory, host_memory, 64, 32, top_k)
    metrics = [
        {name: value for (_, name), value in worker["metrics"][0].items()} for worker in outcome.workers
    ]
    assert [m["local_capacity"] for m in metrics] == local
    assert [m["global_capacity"] for m in metrics] == [shared] * 4


def test_a_share_of_the_largest_capacity_sizes_both_tiers(pool):
    share, graph = 0.2, random_graph(8, vertices=40)
    knobs = {"rapa": False, "capacity_share": share, "policy": "low_overlap"}
    outcome = systems.run(pool, graph, systems.block("capgnn", **knobs), 3, settings=Settings(epochs=1))
    halos = capgnn.halos_of(graph, outcome.assignment)
    metrics = [worker["metrics"][0][-1, "local_capacity"] for worker in outcome.workers]
    assert metrics == [int(share * len(halo)) for halo in halos]
    union = set().union(*(halo.tolist() for halo in halos))
    for worker in outcome.workers:
        assert worker["metrics"][0][-1, "global_capacity"] == int(share * len(union))


def test_tiers_that_contradict_one_another_are_refused():
    with pytest.raises(InputError, match="capacity=3 and capacity_share=0.5 both size the tiers; give one"):
        Capgnn(capacity=3, capacity_share=0.5)
    for policy in ("low_overlap", "fifo", "lru"):
        said = f"tiers=exclusive .* policy={policy} does not; give policy=jaca or"
        with pytest.raises(InputError, match=said):
            Capgnn(policy=policy, tiers="exclusive")
