"""How workers agree before they form a group, and what ends one that would wait for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm import group, members, watch
from harness.comm.meeting import Marks, Meeting
from harness.comm.members import Member, WorkerPlace, myself, seated
from harness.comm.recorder import Epoch
from harness.comm.transport import PeerLost, is_lost
from harness.comm.watch import Watch, stalled
from harness.results.identity import fingerprint
from harness.run import runner
from harness.run.settings import RunConfig

MEMBERS = st.lists(
    st.tuples(st.sampled_from("abc"), st.lists(st.integers(0, 3), max_size=4, unique=True)).map(
        lambda drawn: Member(drawn[0], tuple(f"{drawn[0]}{gpu}" for gpu in drawn[1]))
    ),
    min_size=1,
    max_size=6,
)


@given(found=MEMBERS, device=st.sampled_from(["auto", "cpu", "cuda"]))
def test_all_workers_agree_on_devices_and_backend(found, device):
    def seats() -> list[WorkerPlace]:
        return [seated(found, rank, device) for rank in range(len(found))]

    everywhere = all(member.gpus for member in found)
    if device == "cuda" and not everywhere:
        with pytest.raises(InputError, match="device=cuda but no CUDA device is visible"):
            seats()
        return
    taken = seats()
    assert len({(seat.backend, seat.note, seat.hosts, seat.gpus) for seat in taken}) == 1
    assert {seat.device.type for seat in taken} == {"cuda" if everywhere and device != "cpu" else "cpu"}
    assert sorted(rank for ranks in taken[0].hosts for rank in ranks) == list(range(len(found)))
    for seat, member in zip(taken, found):
        name = seat.gpus[seat.rank]
        assert name is None or name == member.gpus[seat.device.index]
        assert all(found[k].host == member.host for k in seat.neighbours)
    own = taken[0].gpus
    assert (taken[0].backend != "gloo") == (None not in own and len(set(own)) == len(own))


@pytest.mark.parametrize(
    "gpus, device, devices, backend, note",
    [
        # One visible GPU per task, as under SLURM: each is number 0, and they are two.
        ([("h", "x"), ("h", "y")], "auto", ["cuda:0", "cuda:0"], "cpu:gloo,cuda:nccl", ""),
        ([("h", "x", "y"), ("h", "x", "y")], "auto", ["cuda:0", "cuda:1"], "cpu:gloo,cuda:nccl", ""),
        ([("h", "x"), ("h", "x")], "auto", ["cuda:0"] * 2, "gloo", "2 workers share 1 GPU: rows travel"),
        ([("h", "x"), ("i",)], "auto", ["cpu", "cpu"], "gloo", "no CUDA device is visible to worker 1"),
        ([("h", "x"), ("i", "z")], "cpu", ["cpu", "cpu"], "gloo", ""),
    ],
)
def test_unequal_hosts_and_shared_gpus_are_said(gpus, device, devices, backend, note):
    found = [Member(host, tuple(names)) for host, *names in gpus]
    taken = [seated(found, rank, device) for rank in range(2)]
    assert [str(seat.device) for seat in taken] == devices and taken[0].backend == backend
    assert note in taken[0].note and bool(note) == bool(taken[0].note)


def test_workers_of_one_host_and_of_several_are_told_apart_without_the_launchers_variables(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    here = myself("cpu").host
    taken = seated([Member("other"), Member(here), Member("other"), Member(here)], 3, "auto")
    assert taken.hosts == ((0, 2), (1, 3)) and taken.neighbours == (1, 3) and taken.sharing == 2


def test_the_memory_of_a_gpu_is_divided_among_its_workers():
    found = [Member("h", ("x", "y"))] * 3 + [Member("i", ("z",))]
    assert [seated(found, rank, "auto").sharing for rank in range(4)] == [2, 1, 2, 1]


def test_a_gpu_that_torch_cannot_use_is_said(monkeypatch):
    monkeypatch.setattr(members, "driver_gpus", lambda: 2)
    assert "the driver lists 2 GPUs, of which torch" in seated([Member("h")], 0, "auto").note
    assert seated([Member("h")], 0, "cpu").note == ""


def test_an_error_of_one_worker_is_every_workers():
    found = [Member("h"), Member("h", wrong="its shard is missing; make it"), Member("h")]
    for rank in range(3):
        with pytest.raises(InputError, match="^worker 1: its shard is missing; make it$"):
            seated(found, rank, "auto")
    with pytest.raises(InputError, match="^the same$"):
        seated([Member("h", wrong="the same")] * 2, 0, "auto")


def test_an_interface_that_is_not_there_is_refused_before_anybody_joins(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere0")
    assert myself("cpu").wrong.startswith("GLOO_SOCKET_IFNAME=nowhere0 is no network interface of this host;")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert myself("cpu").wrong == ""


def test_the_loopback_interface_reaches_no_other_host():
    assert group.interface_to("127.0.0.1") is None and group.interface_to("") is None


def together(size: int, path, work, seconds: float = 60.0) -> list:
    """work(meeting) of each worker, on a thread of its own."""
    with ThreadPoolExecutor(size) as threads:
        return list(threads.map(lambda k: work(Meeting(k, size, str(path), seconds)), range(size)))


def test_everybody_hears_what_everybody_tells(tmp_path):
    told = together(3, tmp_path / "store", lambda met: met.tell("host", [met.rank, "é\n"]))
    assert told == [[[k, "é\n"] for k in range(3)]] * 3
    assert Meeting(0, 1).tell("host", (1, 2)) == [[1, 2]]


def test_who_did_not_come_is_named_after_the_time_that_was_given(tmp_path):
    with pytest.raises(PeerLost, match=r"^workers 1 and 3 of 4 did not come within rendezvous=0\.3 s; see"):
        meeting = Meeting(2, 4, str(tmp_path / "store"), 0.3)
        Meeting(0, 4, str(tmp_path / "store")).store.set("member/0", "1")
        meeting.tell("member", 1)


def test_the_first_failure_is_the_one_that_is_heard(tmp_path):
    first, second = (Meeting(k, 2, str(tmp_path / "store"), 5) for k in range(2))
    assert second.failure() == ""
    second.fail("its disk is full")
    first.fail("lost a peer")
    assert first.failure() == second.failure() == "worker 1 failed: its disk is full"


class Ended:
    """What a watch calls, and when it has."""

    def __init__(self):
        self.said, self.called = [], threading.Event()

    def __call__(self, sentence: str) -> None:
        self.said.append(sentence)
        self.called.set()


def test_a_run_ends_where_nobody_moves_and_not_before(tmp_path):
    first, second = (Meeting(k, 2, str(tmp_path / "store"), 5) for k in range(2))
    epoch, other, ended = Epoch(7), Marks(second), Ended()
    with Watch(first, lambda: epoch, 0.4, ended):
        for number in range(10):  # longer than the patience: another worker moves
            other.set(number)
            assert not ended.called.wait(0.1)
        assert ended.called.wait(60)
    (sentence,) = ended.said
    assert sentence.startswith("no worker has made progress for patience=0.4 s (worker 0 furthest behind, in")
    assert "epoch 7" in sentence and "\n" not in sentence


def test_a_run_without_patience_waits_for_ever_and_hears_of_failures(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "LOOK", 0.05)
    first, second = (Meeting(k, 2, str(tmp_path / "store"), 5) for k in range(2))
    ended = Ended()
    with Watch(first, lambda: Epoch(0), None, ended) as unwatched:
        assert unwatched.thread is None  # workers of one host are their launcher's to end
    first.under_launcher = True
    with Watch(first, lambda: Epoch(0), None, ended, grace=0.05):
        assert not ended.called.wait(0.3)
        second.fail("its GPU is lost")
        assert ended.called.wait(60)
    assert ended.said == ["worker 1 failed: its GPU is lost"]


def test_who_stands_still_is_named():
    assert "workers 1 and 2 furthest behind, in epoch 3" in stalled(5, [4, 3, 3])
    assert "worker 0 furthest behind, before the first epoch" in stalled(5, [-1, 0])


@pytest.mark.parametrize(
    "text, lost",
    [
        ("[/a/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:25988.", True),
        ("[/a/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 2000ms for recv", True),
        ("Timeout waiting for key: x after 1000 ms", True),
        (
            "[enforce fail at /a/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4.",
            False,
        ),
        ("NCCL error: remote process exited or there was a network error", True),
        ("NCCL error: invalid usage", False),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("Invalid scalar type", False),
    ],
)
def test_an_error_inside_a_collective_is_no_lost_peer(text, lost):
    assert is_lost(RuntimeError(text)) == lost


def strided(comm) -> None:
    comm.transport.broadcast({0: torch.ones(3, 2).t()}).wait()


def test_an_error_of_gloos_own_is_shown_as_it_is(pool):
    with pytest.raises(AssertionError, match="Error: .*contiguous") as failed:
        pool.run(strided, 2, transport="sockets")
    assert "PeerLost" not in str(failed.value)


@pytest.mark.parametrize("failed, called", [(True, "abort"), (False, "destroy")])
def test_a_group_that_does_not_end_is_left(monkeypatch, failed, called):
    """As NCCL's may not, whose operations under way wait for a peer that is gone."""
    calls, free = [], threading.Event()
    monkeypatch.setattr(group, "LEAVING", 0.1)
    monkeypatch.setattr(dist, "get_backend", lambda: "cpu:gloo,cuda:nccl")
    for name, place in (("abort", dist.distributed_c10d), ("destroy", dist)):
        function = "_abort_process_group" if name == "abort" else "destroy_process_group"
        monkeypatch.setattr(place, function, lambda name=name: (calls.append(name), free.wait(60)))
    group._leave(failed)
    free.set()
    assert calls == [called]


def test_how_long_a_run_waits_does_not_make_it_another():
    (asked,), (plain,) = (runner.composed([words]) for words in (["patience=20", "rendezvous=9"], []))
    assert fingerprint(asked.composed, False) == fingerprint(plain.composed, False)
    assert (asked.settings.patience, asked.settings.rendezvous) == (20.0, 9.0)
    assert (RunConfig().patience, RunConfig().rendezvous) == (None, 300.0)
    for word, sentence in (("patience=0", "patience=0.0 is too small"), ("rendezvous=-1", "rendezvous=-1")):
        with pytest.raises(InputError, match=sentence):
            runner.composed([[word]])
