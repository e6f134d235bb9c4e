"""What is measured on a device that works behind its host: on the pretended one, whose every time follows
from what it was asked.
"""

import math

import pytest

from harness.data.partition.assign import assign
from harness.dev.bench import overlap
from harness.dev.conformance.runs import shards_of
from tests import systems
from tests.graphs import random_graph
from tests.pretend.groups import BEHIND, BEYOND, LINK_S, behind
from tests.pretend.overlap import observed
from tests.pretend.timeline import KERNEL_S

FEW = 10 * KERNEL_S  # what bookkeeping may take


@pytest.fixture(scope="module")
def epoch(pool):
    """Worker 0's epoch, as `tests.pretend.groups.behind` says."""
    return pool.run(behind, 2, transport="sockets")[0]


def lasted(epoch, kind: str, name: str) -> float:
    found = [span for span in epoch.spans if (span.kind, span.name) == (kind, name)]
    assert found
    return sum(span.end - span.start for span in found)


def test_kernels_that_are_queued_are_charged_to_the_segment_that_launched_them(epoch):
    assert lasted(epoch, "compute", "forward") == pytest.approx(BEHIND * KERNEL_S, abs=FEW)
    assert lasted(epoch, "compute", "backward") == pytest.approx(BEYOND * KERNEL_S, abs=FEW)
    assert lasted(epoch, "rest", "after") < FEW
    segments = [span for span in epoch.spans if span.kind != "comm"]
    assert [a.end for a in segments[:-1]] == [b.start for b in segments[1:]]
    assert math.fsum(s.end - s.start for s in segments) == pytest.approx(epoch.train, abs=1e-9)


def test_an_operation_begins_when_its_rows_are_there_and_ends_when_it_is_through(epoch):
    (forward,) = (span for span in epoch.spans if span.name == "forward")
    (exchange,) = (span for span in epoch.spans if (span.kind, span.name) == ("comm", "exchange"))
    assert forward.end - FEW < exchange.start < forward.end + FEW
    assert exchange.end - exchange.start == pytest.approx(LINK_S, abs=FEW), "it was waited for much later"
    assert lasted(epoch, "wait", "exchange") < FEW, "it was through when the wait began"


def test_a_sum_does_not_stand_behind_rows(epoch):
    assert lasted(epoch, "comm", "all_reduce") < FEW < LINK_S / 2
    assert lasted(epoch, "wait", "all_reduce") < FEW


def test_a_value_that_the_device_computes_is_read_after_the_epoch(epoch):
    assert epoch.metrics[2, "value"] == 2 * BEHIND


@pytest.mark.parametrize("name", overlap.HELD)
def test_a_pipelined_system_hides_its_communication_on_a_device(pool, name):
    graph = random_graph(1000, 12, seed=3)
    shards = shards_of(graph, assign(graph, "random", 2, 3), 2)

    def share(drains: bool) -> float:
        block = systems.block(name, **overlap.CASES[name])
        workers = pool.run(observed, 2, block, drains, per_worker=shards, transport="sockets")
        found = overlap.measured(workers).median()
        return found.exposed / (found.bytes / workers[0]["rate"])

    assert share(drains=False) <= overlap.TARGET
    if name == "pipegcn":
        assert share(drains=True) > overlap.TARGET, "a wait for the device leaves nothing to hide behind"
