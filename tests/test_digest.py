"""DIGEST: when rows are pushed and pulled, what that costs, how far it is from full-batch training, and what
ends it.
"""

import itertools

import numpy as np
import pytest

from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import systems
from tests.oracles import dense, digest
from tests.oracles.samples import random_graph
from tests.systems import Settings

FULL_BATCH = {"loss": "global"}


def run(pool, knobs, parts=3, name="digest", **settings):
    graph = random_graph(6, vertices=30, directed=False)
    return graph, systems.run(
        pool, graph, systems.block(name, **knobs), parts, "random", Settings(**settings)
    )


def metric(outcome, name, layer=-1):
    """[epochs, workers]; NaN where a worker did not report it."""
    return np.array(
        [
            [worker["metrics"][e].get((layer, name), np.nan) for worker in outcome.workers]
            for e in range(len(outcome.losses))
        ]
    )


@pytest.mark.parametrize("name, knobs, ages", [
    ("digest", {}, [np.nan, np.nan, 1, 2]),
    ("digest_a", {"order": "rotation"}, [np.nan, np.nan, 1, 2]),
])  # fmt: skip
def test_zeros_of_the_start_have_no_age(pool, name, knobs, ages):
    _, outcome = run(pool, {"start": "zeros", "interval": 2, **knobs}, name=name, epochs=4)
    np.testing.assert_array_equal(metric(outcome, "staleness", 1)[:, -1], ages)


@pytest.mark.parametrize(
    "schedule, interval, features, ages",
    [
        ("after", 3, "once", [0, 1, 2, 1, 2, 3, 1, 2]),
        ("literal", 1, "refetch", [0, 1, 1, 1, 1, 1, 1, 1]),
        ("literal", 3, "once", [0, 1, 2, 3, 4, 2, 3, 4]),
    ],
)
def test_staleness_is_what_the_schedule_says_and_bytes_are_the_closed_form(
    pool, schedule, interval, features, ages
):
    """`after`: 1..N; `literal`: N - 1..2N - 2 once pulls have begun (round 3 reads what round 1 pushed). A
    push is every inner row once, a pull every halo row once, for each hidden layer; features once, or every
    round; weights an all-reduce."""
    knobs = {"interval": interval, "schedule": schedule, "features": features}
    _, outcome = run(pool, knobs, parts=4, model=systems.small("gcn", 3, 6), dtype="float32", epochs=8)
    for name, layer in itertools.product(("staleness", "staleness_mean"), (1, 2)):
        np.testing.assert_array_equal(metric(outcome, name, layer), np.array(ages)[:, None].repeat(4, 1))
    halo = sum(rows for (_, _, purpose), (rows, _) in outcome.sent(0).items() if purpose == "features")
    f0, f1, f2, _ = outcome.widths
    weights = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(8):
        r = epoch + 1
        pushes = (r % interval if schedule == "after" else (r - 1) % interval) == 0
        pulls = ((r - 1) % interval if schedule == "after" else r % interval) == 0
        want = {(-1, "backward", "weights"): (0, 2 * 3 * weights * 4)}
        if epoch == 0 or features == "refetch":
            want[0, "forward", "features"] = (halo, halo * f0 * 4)
        for layer, width in ((1, f1), (2, f2)):
            if pushes:
                want[layer, "forward", "push"] = (30, 30 * width * 4)
            if pulls:
                want[layer, "forward", "pull"] = (halo, halo * width * 4)
        assert outcome.sent(epoch) == want
    assert metric(outcome, "start_bytes")[0].sum() == (halo + 30) * (f1 + f2) * 4
    assert (metric(outcome, "store_bytes")[0] == 30 * (f1 + f2) * 4).all()
    assert (
        np.isnan(metric(outcome, "start_bytes")[1:]).all()
        and np.isnan(metric(outcome, "store_bytes")[1:]).all()
    )


def test_weights_after_steps_by_parts_of_a_global_loss_are_not_averaged():
    system = make_system(systems.block("digest", aggregate="weights", loss="global"))
    assert "give system.loss=partition or system.aggregate=gradients" in system.supports(facts_of("gcn"))


def test_one_layer_has_nothing_stale_and_nothing_dropped(pool):
    graph, outcome = run(pool, FULL_BATCH, parts=3, model=systems.small("gcn", 1))
    want = dense.train(graph, outcome.weights[0], epochs=5, lr=0.01, weight_decay=5e-4)
    systems.assert_trained_alike(outcome, want)


def test_gradient_error_is_the_distance_to_the_exact_gradient_and_costs_nothing(pool):
    knobs = {**FULL_BATCH, "interval": 2}
    graph, outcome = run(pool, {**knobs, "gradient_error": True})
    _, plain = run(pool, knobs)
    assert outcome.losses == plain.losses and all(outcome.sent(e) == plain.sent(e) for e in range(5))
    errors = metric(outcome, "gradient_error")
    assert (errors == errors[:, :1]).all()
    # By part, of which the store's rows take no gradient back.
    (own,) = digest.train(
        graph, outcome.assignment, outcome.weights[0], epochs=1, lr=0.0, interval=2, loss="global"
    ).gradients
    (exact,) = dense.train(graph, outcome.weights[0], epochs=1, lr=0.0).gradients
    flat = [
        np.concatenate([gradient[name].ravel() for name in sorted(exact)])
        for gradient in ({name: sum(part[name] for part in own) for name in exact}, exact)
    ]
    want = np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])
    np.testing.assert_allclose(errors[0, 0], want, rtol=1e-6)
    _, alone = run(pool, {"gradient_error": True}, parts=1, model=systems.small(dropout=0.5))
    assert metric(alone, "gradient_error").max() < 1e-12, "the same masks"


@pytest.mark.parametrize("name, knobs", [("digest", {}), ("digest_a", {"order": "rotation"})])
def test_redis_and_shared_memory_train_alike_to_the_bit(pool, redis_server, name, knobs):
    model = systems.small("gcn", 3, 5, dropout=0.3)
    how = dict(name=name, parts=2, model=model, dtype="float32", epochs=4)
    _, shared = run(pool, {"interval": 2, **knobs}, **how)
    before = redis_server.bytes_received()
    _, redis = run(pool, {"interval": 2, "store": redis_server.url, **knobs}, **how)
    pushed = sum(
        size for e in range(4) for (_, _, purpose), (_, size) in redis.sent(e).items() if purpose == "push"
    )
    assert 0 < pushed < redis_server.bytes_received() - before
    _, resumed = run(pool, {"interval": 2, "store": redis_server.url, **knobs}, stop_at=3, **how)
    for other in (redis, resumed):
        assert other.losses == shared.losses
        assert all(
            np.array_equal(other.weights[-1][name], shared.weights[-1][name]) for name in shared.weights[-1]
        )
    assert all(redis.sent(e) == shared.sent(e) for e in range(4))


def test_pulls_are_asked_for_a_layer_ahead_and_pushes_while_later_layers_compute(pool):
    model = systems.small("gcn", 4, 5)
    _, outcome = run(pool, {"interval": 1}, model=model, epochs=3)
    for worker in outcome.workers:
        spans = worker["spans"][2][1]
        begins = {
            (s.name, s.layer): s.start for s in reversed(spans) if s.kind == "compute" and s.name == "forward"
        }
        flights = {(s.name, s.layer): s for s in spans if s.kind == "comm"}
        for layer in (1, 2, 3):
            assert flights["pull", layer].start < begins["forward", layer]
            assert layer == 1 or flights["pull", layer].start >= begins["forward", layer - 1]
            assert flights["push", layer].start >= begins["forward", layer]
        waits = {(s.name, s.layer) for s in spans if s.kind == "wait"}
        assert {("pull", 1), ("pull", 2), ("pull", 3), ("push", 1), ("push", 2), ("push", 3)} <= waits
