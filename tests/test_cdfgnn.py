"""CDFGNN: its messages and their bytes, its threshold; and exact training over a vertex-cut."""

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.core.quantise import row_bytes
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.run import prepare
from harness.run.config import make_system
from tests import systems
from tests.oracles import bytes as count
from tests.oracles import dense
from tests.oracles.samples import random_graph
from tests.systems import Settings
from tests.variants import REFETCH

BASELINE = {"cache": False, "quantise": False}


def test_a_worker_without_edges_or_masters_trains(pool):
    """Two edges over four workers: some hold nothing but what a hash gave them."""
    graph = random_graph(1, vertices=14).replace(
        indptr=np.array([0, 1, 3, 4] + [4] * 11, np.int32),
        indices=np.array([1, 0, 2, 1], np.int32),
        symmetric=True,
    )
    assert 0 in statistics(assign_edges(graph, "ebv", 4, 0))["edges"]
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **BASELINE), 4)
    systems.assert_trained_alike(
        outcome, dense.train(graph, outcome.weights[0], epochs=5, **Settings().optimiser)
    )
    systems.run(pool, graph, systems.block("cdfgnn"), 4)


def messages(outcome, epoch: int, name: str) -> dict[tuple[int, str], int]:
    """(layer, direction) -> all workers' `name`_direction."""
    total: dict[tuple[int, str], int] = {}
    for worker in outcome.workers:
        for (layer, metric), value in worker["metrics"][epoch].items():
            if metric.startswith(name + "_"):
                key = layer, metric.removeprefix(name + "_")
                total[key] = total.get(key, 0) + int(value)
    return total


@pytest.mark.parametrize(
    "bits, quantised, scatter", [(8, True, "value"), (4, True, "fp32"), (8, False, "value")]
)
def test_without_a_cache_bytes_are_the_closed_form(pool, bits, quantised, scatter):
    graph = random_graph(12, vertices=40)
    settings = Settings(model=systems.small("gcn", 3, 7), dtype="float32", epochs=2)
    knobs = {"cache": False, "quantise": quantised, "bits": bits, "scatter": scatter, **REFETCH}
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), 4, settings=settings)
    mirrors = sum(statistics(outcome.assignment)["replicas"]) - 40
    for epoch in range(2):
        sent = outcome.sent(epoch)
        assert sent.pop((-1, "backward", "weights"))[1] == count.all_reduce(
            sum(w.size for w in outcome.weights[0].values()), 4
        )
        for layer, width in enumerate(outcome.widths[1:]):
            coded, plain = row_bytes(width, bits, torch.float32), 4 * width
            for direction in ("forward", "backward"):
                assert sent.pop((layer, direction, "gather")) == (
                    mirrors,
                    mirrors * (coded if quantised else plain),
                )
                each = coded if quantised and scatter != "fp32" else plain
                assert sent.pop((layer, direction, "scatter")) == (mirrors, mirrors * each)
                assert messages(outcome, epoch, "sent")[layer, direction] == 2 * mirrors
        assert not sent, "nothing else travels"


def test_with_a_cache_bytes_follow_the_messages(pool):
    graph = random_graph(12, vertices=40, directed=False)
    settings = Settings(model=systems.small("gcn", 2, 7), dtype="float32", epochs=8)
    knobs = {"bits": 4, "epsilon": 0.1, **REFETCH}
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), 4, settings=settings)
    mirrors = sum(statistics(outcome.assignment)["replicas"]) - 40
    for epoch in range(8):
        sent = outcome.sent(epoch)
        told = messages(outcome, epoch, "sent")
        assert set(messages(outcome, epoch, "possible").values()) == {2 * mirrors}
        for layer, width in enumerate(outcome.widths[1:]):
            row = 4 + row_bytes(width, 4, torch.float32)  # its id travels with a row
            for direction in ("forward", "backward"):
                gathered, scattered = (
                    sent.get((layer, direction, phase), (0, 0)) for phase in ("gather", "scatter")
                )
                assert gathered[0] + scattered[0] == told[layer, direction]
                assert gathered[1] == gathered[0] * row and scattered[1] == scattered[0] * row
                # Every worker tells every other, before each of the two phases, how many rows to expect.
                assert sent[layer, direction, "counts"][1] == 2 * 4 * 3 * 8
        assert sent[-1, "backward", "accuracy"][1] == 2 * 3 * 2 * 8
    # The loss is on masters only: a mirror's own part of delta in the last layer is 0, and 0 is not sent.
    assert all((1, "backward", "gather") not in outcome.sent(epoch) for epoch in range(8))


def test_the_coding_error_is_within_the_bound_of_section_5_and_costs_nothing(pool):
    graph = random_graph(5)
    plain, told = (
        systems.run(pool, graph, systems.block("cdfgnn", coding_error=told), 3, "ebv")
        for told in (False, True)
    )
    assert plain.losses == told.losses
    for epoch, sent in enumerate(plain.losses):
        assert plain.sent(epoch) == told.sent(epoch)
        errors = [worker["metrics"][epoch][-1, "coding_error"] for worker in told.workers]
        assert 0 < max(errors) <= 256 / 255 * (1 + 1e-6), "255 steps where the bound has 256"
        assert all((-1, "coding_error") not in worker["metrics"][epoch] for worker in plain.workers)


def test_features_once_leaves_layer_0_silent(pool):
    graph = random_graph(12, vertices=40)
    outcome = systems.run(
        pool, graph, systems.block("cdfgnn", features="once"), 4, settings=Settings(dtype="float32")
    )
    mirrors = sum(statistics(outcome.assignment)["replicas"]) - 40
    f0 = outcome.widths[0]
    assert outcome.sent(0)[0, "forward", "features"] == (2 * mirrors, 2 * mirrors * 4 * f0)
    assert not any(layer == 0 for epoch in range(1, 5) for layer, _, _ in outcome.sent(epoch))


def thresholds(accuracies, **knobs) -> list[float]:
    """eps of the epochs after each accuracy."""
    system = make_system({**systems.block("cdfgnn"), **knobs})
    system.eps, system.mean_accuracy, seen = system.epsilon, None, []
    for accuracy in accuracies:
        system.adapt(accuracy)
        seen.append(system.eps)
    return seen


def test_the_threshold_follows_the_prose_or_the_print():
    # The mean is 0.5, 0.5, 0.52, 0.456, 0.4648: first compared, then updated.
    accuracies = [0.5, 0.5, 0.6, 0.2, 0.5]
    np.testing.assert_allclose(thresholds(accuracies), [0.01, 0.01, 0.0105, 0.00945, 0.0099225])
    np.testing.assert_allclose(thresholds(accuracies, rule="literal"), [0.01, 0.01, 0.009, 0.00945, 0.008505])
    # Steps are at most xi, and the bounds hold.
    np.testing.assert_allclose(thresholds([0.5, 0.6], epsilon=0.25, xi=0.005), [0.25, 0.255])
    np.testing.assert_allclose(thresholds([0.5, 0.4], epsilon=0.25, xi=0.005), [0.25, 0.245])
    np.testing.assert_allclose(thresholds([0.5, 0.6], epsilon=0.299), [0.299, 0.3])
    np.testing.assert_allclose(thresholds([0.5, 0.4], epsilon=0.00105), [0.00105, 0.001])


def test_bounds_of_the_threshold_the_wrong_way_round_are_one_sentence():
    with pytest.raises(
        InputError, match=r"^system.nu1=0.0001, the upper bound of epsilon, is less than nu2=0.001"
    ):
        make_system(systems.block("cdfgnn", nu1=0.0001))


def test_the_partition_needs_no_word_and_a_wrong_one_is_refused(tmp_path):
    assert systems.asked("system=cdfgnn").partition.name == "ebv"
    assert systems.asked("system=vanilla").partition.name == "metis"
    wrong = systems.asked("system=cdfgnn", "partition=metis", f"results={tmp_path}", f"cache={tmp_path}")
    said = "^partition=metis is an edge-cut and cdfgnn trains on a vertex-cut: give partition=ebv"
    with pytest.raises(InputError, match=said):
        prepare.prepare(wrong)
