"""Bytes of an epoch are the closed form that a system's page gives, by layer and direction."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests import systems
from tests.oracles import adaqp, bns, cofree, ecgraph, grappa, varco
from tests.oracles import bytes as count
from tests.oracles.samples import random_graph
from tests.oracles.split import blocks_of
from tests.systems import Settings
from tests.test_systems_oracle import flags_of

WAYS = ("forward", "backward")
# By epoch, {"forward" | "backward": [L]}.
Bytes = Iterator[dict[str, np.ndarray]]


def exchanged(graph, outcome, how, features: str) -> Iterator[dict]:
    """count.vanilla of every epoch."""
    for epoch in range(how.epochs):
        yield count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)


def of_exchange(graph, outcome, how, *, features) -> Bytes:
    """Every layer's rows forward, and their gradients back."""
    for want in exchanged(graph, outcome, how, features):
        yield want["bytes"]


def of_nothing(graph, outcome, how) -> Bytes:
    """The controls."""
    for _ in range(how.epochs):
        yield dict.fromkeys(WAYS, np.zeros(3, int))


def of_llcg(graph, outcome, how, *, features, server_steps, **_) -> Bytes:
    """An exact exchange per correction; local steps cost nothing."""
    repeated = np.array([1 if features == "once" else server_steps, server_steps, server_steps])
    for want in exchanged(graph, outcome, how, features):
        yield {way: want["bytes"][way] * repeated for way in WAYS}


def of_coded_rows(graph, outcome, how, *, bits, features, **_) -> Bytes:
    """A row of f columns is f bits / 8 bytes, rounded up, and two numbers of 4 bytes, in every epoch, whether
    it is used or dropped, as `sylvie` does; under "once" layer 0 is fetched exact, in the first epoch
    alone."""
    row = np.array([-(-f * bits // 8) + 8 for f in outcome.widths[:-1]])
    row[0] = 4 * outcome.widths[0] if features == "once" else row[0]
    for want in exchanged(graph, outcome, how, features):
        yield {way: row * want["rows"][way] for way in WAYS}


def of_varco(graph, outcome, how, *, compression, slope, features) -> Bytes:
    """4 bytes for each column kept of a row; under "once" layer 0 is fetched whole, in the first epoch
    alone."""
    for epoch, want in enumerate(exchanged(graph, outcome, how, features)):
        kept = [varco.kept(f, epoch, how.epochs, compression, slope) for f in outcome.widths[:-1]]
        kept[0] = outcome.widths[0] if features == "once" else kept[0]
        yield {way: 4 * np.array(kept) * want["rows"][way] for way in WAYS}


def of_bns(graph, outcome, how, *, rate, features) -> Bytes:
    """Each exchange moves the sum over pairs of max(1, round(p m)) rows, and no ids; "once" all of layer 0's,
    in epoch 0 only."""
    halo = count.halo_rows(graph, outcome.assignment)  # [owner, receiver]
    drawn = np.array([[bns.sample_size(rate, m) if m else 0 for m in owned] for owned in halo.tolist()])
    for epoch in range(how.epochs):
        told = [systems.of_the_system(worker["metrics"][epoch]) for worker in outcome.workers]
        assert told == [{(-1, "rows_drawn"): float(n)} for n in drawn.sum(0)]
        hidden = [drawn.sum() * 4 * width for width in outcome.widths[1:-1]]
        first = drawn.sum() if features == "refetch" else halo.sum() * (epoch == 0)
        yield {"forward": [first * 4 * outcome.widths[0], *hidden], "backward": [0, *hidden]}


def of_cagnet(graph, outcome, how, **knobs) -> Bytes:
    """Blocks of a column, and what its replicas add up."""
    for epoch in range(how.epochs):
        yield count.cagnet(graph.num_vertices, 4, outcome.widths, first=epoch == 0, **knobs)


def of_skipg(graph, outcome, how, *, bound, features) -> Bytes:
    everyone = 4 * 3 * graph.num_vertices * np.array(outcome.widths)
    for epoch in range(how.epochs):
        yield {"forward": everyone[:-1], "backward": everyone[1:] * (epoch % (bound + 1) == 0)}


def of_sanqus(graph, outcome, how, *, bits, gradients, features, **_) -> Bytes:
    """A broadcast of n rows to P - 1 others: each row of f columns is f bits / 8 bytes, rounded up, and two
    numbers of 4 bytes. Blocks take turns. Layer 0 is exact but for "refetch", and broadcast once."""

    def row(width: int, bits: int) -> int:
        return 4 * width if bits == 32 else -(-width * bits // 8) + 2 * 4

    sizes = [len(rows) for rows in blocks_of(outcome.assignment)]
    widths, n = outcome.widths, graph.num_vertices
    for epoch in range(how.epochs):
        due = sum(size for j, size in enumerate(sizes) if epoch == 0 or j % 2 == epoch % 2)
        forward = [due * row(width, bits) for width in widths[:-1]]
        if features != "refetch":
            forward[0] = n * 4 * widths[0] if epoch == 0 else 0
        backward = [n * row(width, 32 if gradients == "exact" else bits) for width in widths[1:]]
        if features == "once":
            backward[0] = 0
        yield {"forward": 3 * np.array(forward), "backward": 3 * np.array(backward)}


def of_ecgraph(graph, outcome, how, **knobs) -> Bytes:
    """Those of rows that were not predicted."""
    for sent in systems.history(ecgraph.train, graph, outcome, how, **knobs).sent:
        yield {way: np.array([sent[layer, way] for layer in range(3)]) for way in WAYS}


def of_cofree(graph, outcome, how, *, features) -> Bytes:
    """The features of copies."""
    cut, width = outcome.assignment, graph.num_features
    for epoch in range(how.epochs):
        size = cofree.epoch_bytes(cut, cut.masters(), width, features=features, first=epoch == 0)
        yield {"forward": [size, 0, 0], "backward": [0, 0, 0]}


SANQUS = {"staleness": "epoch_adaptive", "bound": 1}
COMPUTED = {"rate": "computed", "features": "refetch"}
CASES: list[tuple[str, Callable[..., Bytes], dict, dict]] = [
    *((name, of_nothing, {}, {}) for name in ("zero_halo", "local")),
    *(("vanilla", of_exchange, {"features": each}, {}) for each in ("once", "refetch")),
    ("pipegcn", of_exchange, {"features": "refetch"}, {}),
    *(
        ("llcg", of_llcg, {"local_steps": 3, "server_steps": 2, "batch": 4, "features": each}, {})
        for each in ("once", "refetch")
    ),
    *(
        ("adaqp", of_coded_rows, {"bits": bits, "features": features}, {})
        for bits, features in ((2, "refetch"), (4, "once"))
    ),
    ("sylvie", of_coded_rows, {"bits": 1, "mode": "asynchronous", "period": 2, "features": "refetch"}, {}),
    *(
        ("varco", of_varco, {"compression": 4, "slope": 2, "features": each}, {"epochs": 6})
        for each in ("once", "refetch")
    ),
    *(("bns", of_bns, {"rate": 0.3, "features": each}, {}) for each in ("once", "refetch")),
    *(("cofree", of_cofree, {"features": each}, {}) for each in ("once", "refetch")),
    *(
        ("cagnet", of_cagnet, {"features": features, "replication": replication}, {})
        for features in ("once", "refetch")
        for replication in (1, 2)
    ),
    ("skipg", of_skipg, {"bound": 2, "features": "refetch"}, {}),
    *(
        ("sanqus", of_sanqus, {"bits": bits, "gradients": gradients, "features": features, **SANQUS}, {})
        for bits, gradients, features in (
            (2, "coded", "once"),
            (4, "exact", "kept"),
            (32, "coded", "refetch"),
        )
    ),
    ("ecgraph", of_ecgraph, {"period": 3, "bits": 2}, {"epochs": 9}),
    ("ecgraph", of_ecgraph, {"period": 4, "bits": 1, "backward_bits": 2, **COMPUTED}, {"epochs": 9}),
    ("ecgraph", of_ecgraph, {"compensate": False, "bits": 4}, {}),
]


@pytest.mark.parametrize("name, want, knobs, how", CASES)
def test_bytes_are_the_closed_form(pool, name, want, knobs, how):
    graph = random_graph(12, vertices=40)
    settings = Settings(systems.small("gcn", 3, 9), dtype="float32", **{"epochs": 4, **how})
    outcome = systems.run(pool, graph, systems.block(name, **knobs), 4, settings=settings)
    for epoch, sizes in enumerate(want(graph, outcome, settings, **knobs)):
        for way in WAYS:
            sent = systems.bytes_by_layer(outcome, epoch, way)
            np.testing.assert_array_equal(sent, sizes[way], err_msg=f"{epoch} {way}")
        values = sum(w.size for w in outcome.weights[0].values())
        sums = sum(size for (_, _, purpose), (_, size) in outcome.sent(epoch).items() if purpose == "weights")
        assert sums == count.all_reduce(values, 4) * (1 + knobs.get("server_steps", 0))


@pytest.mark.parametrize("parts, period", [(4, 2), (2, 1)])
def test_bytes_of_grappa_are_those_of_parts_that_are_new(pool, parts, period):
    graph = random_graph(12, vertices=40)
    how = Settings(systems.small("gcn", 3, 6), dtype="float32", epochs=7)
    outcome = systems.run(pool, graph, systems.block("grappa", period=period), parts, settings=how)
    for epoch in range(how.epochs):
        sent = dict.fromkeys(("features", "structure"), 0)
        for (_, _, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose != "weights":
                sent[purpose] += size
        assert sent == grappa.epoch_bytes(graph, outcome.assignment, parts, period, epoch), epoch


def test_bytes_of_adaqp_are_those_of_the_bits_that_the_oracle_chooses(pool):
    """A row of B bits is B F / 8 bytes rounded up and two constants; where bits are chosen, one byte per row;
    once, the weights w."""
    graph, width = random_graph(12, vertices=40), 6
    how = Settings(systems.small("gcn", 3, width), epochs=5)
    knobs = {"bits": 4, "period": 3, "features": "once"}
    block = systems.block("adaqp", assignment="adaptive", **knobs)
    outcome = systems.run(pool, graph, block, 4, settings=how)
    history = systems.history(
        adaqp.train, graph, outcome, how, systems.drawer(how.seed), adaptive=True, **knobs
    )
    halo, constants = int(count.halo_rows(graph, outcome.assignment).sum()), 2 * 8
    for epoch in range(5):
        sizes = {key: size for key, (_, size) in outcome.sent(epoch).items()}
        for layer in (1, 2):
            for way in WAYS:
                chosen = [history.bits[epoch][layer, way, sender] for sender in range(4)]
                means = [worker["metrics"][epoch][layer, f"mean_bits_{way}"] for worker in outcome.workers]
                np.testing.assert_allclose(means, [bits.mean() for bits in chosen], rtol=1e-6)
                bits = np.concatenate(chosen)
                assert set(bits) <= {2, 4, 8} and len(set(bits)) > 1
                assert len(bits) == halo and bits.mean() <= 4
                rows = sum(-(-b * width // 8) + constants for b in bits.tolist())
                assert sizes[layer, way, "halo"] == rows
                weights = 8 * halo if (epoch, layer, way) == (0, 1, "backward") else 0
                assert sizes.get((layer, way, "bits"), 0) == (halo if epoch % 3 == 0 else 0) + weights


def test_bytes_of_sancus_follow_its_flags(pool):
    settings = Settings(dtype="float32", epochs=6)
    block = systems.block("sancus", staleness="variation_gap", bound=0.02, features="refetch")
    outcome = systems.run(pool, random_graph(6, vertices=32), block, 4, settings=settings)
    active = flags_of(outcome, 4, 6, 2)
    assert not active.all(), "nothing was skipped: the bound tests nothing"
    for epoch in range(6):
        want = count.sancus(active[epoch], outcome.assignment, outcome.widths, features="refetch")
        got = {key: np.zeros(2, int) for key in (*WAYS, "flags")}
        for (layer, direction, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose != "weights":
                got["flags" if purpose == "flags" else direction][layer] += size
        for key in got:
            np.testing.assert_array_equal(got[key], want[key], err_msg=key)


def test_a_block_of_sancus_is_sent_where_its_gap_exceeds_the_bound(pool):
    """The gap is a metric, by which a bound can be chosen; the first epoch sends without measuring one."""
    block = systems.block("sancus", staleness="variation_gap", bound=0.02, features="refetch")
    outcome = systems.run(pool, random_graph(6, vertices=32), block, 4, settings=Settings(epochs=6))
    metrics = [epoch for worker in outcome.workers for epoch in worker["metrics"][1:]]
    told = [(epoch[layer, "gap"] > 0.02, epoch[layer, "active"]) for epoch in metrics for layer in range(2)]
    assert all(exceeds == active for exceeds, active in told) and len(set(told)) == 2
    assert (1, "gap") not in outcome.workers[0]["metrics"][0]


def test_sancus_official_is_the_published_schedule(pool):
    """Layer 0's blocks once, its deltas always; layer 1 in epochs 0 to 50, the first 51, and in every second
    one after."""
    block = systems.block("sancus/official")
    outcome = systems.run(pool, random_graph(4, vertices=20), block, 3, settings=Settings(epochs=55))
    active = flags_of(outcome, 3, 55, 2)
    np.testing.assert_array_equal(active[:, 1, 0], [1] * 51 + [0, 1, 0, 1])
    assert all(((0, "forward", "blocks") in outcome.sent(e)) == (e == 0) for e in range(55))
    assert all((0, "backward", "deltas") in outcome.sent(e) for e in range(55))
    assert block["clip"] == math.inf
