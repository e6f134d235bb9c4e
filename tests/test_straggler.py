"""A slow worker of any system: what it owes, who waits for it, and that nothing else changes."""

from types import SimpleNamespace

import pytest
import torch

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder, Span
from harness.core import straggler
from harness.core.mixins import AsynchronousSystem
from harness.results.report import groups
from tests import systems, traces
from tests.oracles.samples import random_graph
from tests.pretend.install import pretended
from tests.pretend.tally import SYNCHRONISATION
from tests.systems import Settings
from tests.test_identity import run_of

# The workers of an asynchronous one are at no common epoch: tests/test_digest_a.py.
SYNCHRONOUS = sorted(
    name
    for name in (path.stem for path in systems.CONF.glob("*.yaml"))
    if not isinstance(systems.make_system(systems.block(name)), AsynchronousSystem)
)


def held(monkeypatch, epoch=0, *, seed=3, rank=1, waited=0.0, **knobs) -> float:
    """What straggler 1 owes after four seconds of an epoch, `waited` of them for others."""
    now, slept, recorder = [10.0], [], Recorder()
    monkeypatch.setattr(straggler, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=slept.append))
    slow = straggler.Straggler(1, **knobs)
    slow.begin()
    recorder.begin_epoch(epoch)
    recorder.epoch.spans = [Span("wait", "exchange", 0, 1.0, 1.0 + waited), Span("comm", "exchange", 0, 1, 9)]
    now[0] += 4.0
    owed = slow.hold(Comm(rank, 1, torch.device("cpu"), recorder), seed, epoch)
    assert slept == ([owed] if rank == 1 else [])
    return owed


def test_a_straggler_owes_what_each_knob_says_and_their_sum(monkeypatch):
    assert held(monkeypatch, delay=2.0) == 2.0
    assert held(monkeypatch, slowdown=1.5) == 2.0
    assert held(monkeypatch, slowdown=1.5, waited=3.0) == 0.5, "what it waited for others is not its work"
    drawn = [held(monkeypatch, e, delay_spread=0.25) for e in range(40)]
    assert 0 <= min(drawn) < 0.05 and 0.2 < max(drawn) <= 0.25 and len(set(drawn)) == 40
    twice = [held(monkeypatch, e, delay_spread=0.5) for e in range(40)]
    assert twice == pytest.approx([2 * each for each in drawn])
    assert held(monkeypatch, delay_spread=0.25, seed=4) != drawn[0]
    both = {"delay": 2.0, "slowdown": 1.5, "delay_spread": 0.25}
    assert held(monkeypatch, 7, **both) == pytest.approx(4.0 + drawn[7])
    assert held(monkeypatch, **both, rank=0) == 0.0


@pytest.mark.parametrize("rank", [0, 1])
def test_a_straggler_on_a_gpu_owes_what_its_device_took(rank):
    recorder = Recorder()
    recorder.begin_epoch(0)
    with pretended(recorder, nccl=False) as tally, recorder.train():
        slow = straggler.Straggler(1, slowdown=1.5)
        slow.begin()
        slow.hold(Comm(rank, 1, torch.device("cuda", 0), recorder), 3, 0)
        assert tally.count(SYNCHRONISATION, 0) == rank


# One of each kind of exchange; the others take the night.
KINDS = {"cdfgnn", "llcg", "pipegcn", "sancus", "vanilla"}


@pytest.mark.parametrize(
    "name",
    [name if name in KINDS else pytest.param(name, marks=pytest.mark.nightly(10)) for name in SYNCHRONOUS],
)
def test_every_systems_worker_can_be_slow_and_nothing_else_changes(pool, name):
    graph, block = random_graph(6, vertices=30), systems.block(name)
    plain, slow = (
        systems.run(pool, graph, block, 3, settings=Settings(epochs=3, straggler=given))
        for given in (None, {"rank": 1, "delay": 0.05, "slowdown": 1.2})
    )
    assert slow.losses == plain.losses
    assert [slow.sent(e) for e in range(3)] == [plain.sent(e) for e in range(3)]
    for rank, worker in enumerate(slow.workers):
        slept = [[s.end - s.start for s in spans if s.name == "straggle"] for _, spans in worker["spans"]]
        assert [len(each) for each in slept] == [int(rank == 1)] * 3, "once per epoch, whatever its steps"
        assert all(each >= 0.05 for epoch in slept for each in epoch)
        assert all(train >= 0.05 for train, _ in worker["spans"]), "all wait, who combine gradients"


def test_what_slows_nobody_down_is_refused_in_one_sentence():
    assert run_of("straggler=delayed", "gpus=2").straggler == straggler.Straggler(0, 0.08, 0.02, 1.0)
    assert run_of().straggler is None
    with pytest.raises(InputError, match="^straggler.rank=2 is not a worker of 2; give 0 to 1$"):
        run_of("straggler=delayed", "gpus=2", "straggler.rank=2")


def test_a_run_with_a_straggler_is_another_run_and_is_named_so(tmp_path):
    assert run_of("straggler=delayed").fingerprint != run_of().fingerprint
    for name, more in (("plain", {}), ("slow", {"straggler": {"rank": 0, "delay": 0.08}})):
        traces.finished(tmp_path / name, traces.config(**more))
    found, _ = groups.load([tmp_path])
    assert [g.label for g in found] == ["plain", "plain straggler.delay=0.08 straggler.rank=0"]
