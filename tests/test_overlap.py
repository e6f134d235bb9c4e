"""Pipelined systems: what is waited for was sent epochs ago, and behind the weights; and the bench's slow
link is slow and nothing else.
"""

import math

import pytest

from harness.core.architectures import Gcn
from harness.dev.bench import overlap
from tests import jobs, systems
from tests.graphs import random_graph as larger_graph
from tests.oracles.samples import random_graph

CASES = [
    ("pipegcn", {}, 1),
    ("pscgcn", {"tau": 1, "rate": 0.5, "refresh": 100, "features": "refetch"}, 1),
    ("pscgcn", {"tau": 2, "rate": 0.5, "refresh": 100}, 2),
]


def of_halos(spans, kind: str) -> list:
    """Spans of this kind of the exchanges of hidden layers."""
    return [span for span in spans if span.kind == kind and span.name == "exchange" and span.layer >= 1]


def asked_in(spans) -> list[int]:
    """The epochs in which was asked for what these spans wait for."""
    return [int(span.id.split(":")[0]) for span in of_halos(spans, "wait")]


@pytest.mark.parametrize("name,knobs,tau", CASES, ids=lambda value: str(value))
def test_halo_rows_and_gradients_are_waited_for_tau_epochs_after_they_were_posted(pool, name, knobs, tau):
    outcome = systems.run(pool, random_graph(3, vertices=30), systems.block(name, **knobs), 3)
    for worker in outcome.workers:
        for epoch, (_, spans) in enumerate(worker["spans"]):
            one_per_direction = [epoch - tau] * 2 if epoch >= tau else []
            assert asked_in(spans) == one_per_direction
            (reduced,) = (s.end for s in spans if s.kind == "wait" and s.name == "all_reduce")
            after_the_weights = [span.start > reduced for span in of_halos(spans, "comm")]
            assert after_the_weights == [False, True], "first features, then gradients"


@pytest.mark.parametrize(
    "knobs", [{"jaca": False}, {"local_capacity": 3, "global_capacity": 0}], ids=lambda knobs: "-".join(knobs)
)
def test_capgnns_halo_rows_are_waited_for_an_epoch_after_they_were_asked_for(pool, knobs):
    block = systems.block("capgnn", rapa=False, pipeline=True, **knobs)
    outcome = systems.run(pool, random_graph(3, vertices=30), block, 3)
    for worker in outcome.workers:
        for epoch, (_, spans) in enumerate(worker["spans"]):
            # Epoch 0 uses what it asks for, and so does epoch 1. Gradients are returned and waited for in the
            # epoch itself.
            assert asked_in(spans) == ([0, 0] if epoch == 0 else [1] if epoch == 1 else [epoch - 1, epoch])


def test_over_a_slow_link_nothing_arrives_early_and_all_arrives(pool):
    graph, block = random_graph(4, vertices=30), systems.block("vanilla")
    plain = systems.run(pool, graph, block, 3)
    slow = systems.run(pool, graph, block, 3, job=jobs.train_over_slow_link)
    assert slow.losses == plain.losses
    for worker in slow.workers:
        for _, spans in worker["spans"]:
            for span in spans:
                if span.kind == "comm" and span.bytes:
                    assert span.end - span.start >= 0.99 * span.bytes / jobs.SLOW


def test_overlap_lines_are_finite():
    graph = larger_graph(300, 12, num_features=20, num_classes=4, seed=1)
    (line,) = overlap.overlap_lines(graph, Gcn(layers=2, hidden=8, dropout=0.0), names=("pipegcn",))
    assert line.target == overlap.TARGET and math.isfinite(line.ratio) and line.ours >= 0
