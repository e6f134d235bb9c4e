"""What ends a worker that would wait for ever, and what is said of it."""

import threading

import pytest
import torch
import torch.distributed as dist

from harness.comm import group, watch
from harness.comm.meeting import Marks, Meeting, background
from harness.comm.recorder import Epoch
from harness.comm.transport import PeerLost, is_lost, losing_peers
from harness.comm.watch import Watch, meeting_in_time, stalled
from harness.run import worker


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
    with Watch(first, lambda: epoch, 1.0, ended):
        for number in range(13):  # longer than the patience: another worker moves
            other.set(number)
            assert not ended.called.wait(0.1)
        assert ended.called.wait(60)
    (sentence,) = ended.said
    assert sentence.startswith("no worker has made progress for patience=1 s (worker 0 furthest behind, in")
    assert "epoch 8" in sentence and "\n" not in sentence


def test_a_worker_whose_store_answers_no_more_ends_within_its_patience(tmp_path, monkeypatch):
    """As that of a host from which the store's is cut off."""
    free, ended = threading.Event(), Ended()
    monkeypatch.setattr(Marks, "read", lambda marks: free.wait(60))
    with Watch(Meeting(0, 2, str(tmp_path / "store"), 5), lambda: Epoch(7), 0.4, ended):
        assert ended.called.wait(30)
    free.set()
    assert ended.said[0].startswith("no worker has made progress for patience=0.4 s")


def test_what_a_worker_ends_with_is_printable(monkeypatch):
    written = []
    monkeypatch.setattr(worker.os, "write", lambda file, said: written.append(said))
    monkeypatch.setattr(worker.os, "_exit", written.append)
    worker.ended(PeerLost("lost \x1b[2J"), 1)
    assert written == [b"error: lost \\x1b[2J\n", 1]


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


def test_a_watch_for_whose_question_there_was_no_thread_asks_again(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "LOOK", 0.05)
    first, second = (Meeting(k, 2, str(tmp_path / "store"), 5) for k in range(2))
    first.under_launcher, ended, refused = True, Ended(), []

    def short_of_threads(ask):
        if not refused:
            refused.append(ask)
            raise RuntimeError("can't start new thread")
        return background(ask)

    monkeypatch.setattr(watch, "background", short_of_threads)
    second.fail("its GPU is lost")
    with Watch(first, lambda: Epoch(0), None, ended, grace=0.05):
        assert ended.called.wait(60) and refused


def test_who_stands_still_is_named():
    assert "workers 1 and 2 furthest behind, in epoch 4" in stalled(5, [4, 3, 3])
    assert "worker 0 furthest behind, before the first epoch" in stalled(5, [-1, 0])


@pytest.mark.parametrize(
    "text, lost",
    [
        ("[/a/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:25988.", True),
        ("Timeout waiting for key: x after 1000 ms", True),
        (
            "[enforce fail at /a/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4.",
            False,
        ),
        ("NCCL error: remote process exited or there was a network error", True),
        ("NCCL error: invalid usage", False),
    ],
)
def test_an_error_inside_a_collective_is_no_lost_peer(text, lost):
    assert is_lost(RuntimeError(text)) == lost


def test_gloos_interface_is_not_blamed_for_a_peer_that_nccl_lost():
    with pytest.raises(PeerLost, match=r"^NCCL error: remote process exited$"), losing_peers():
        raise RuntimeError("NCCL error: remote process exited.\nLast error: none")


def strided(comm) -> None:
    comm.transport.broadcast({0: torch.ones(3, 2).t()}).wait()


def test_an_error_of_gloos_own_is_shown_as_it_is(pool):
    with pytest.raises(AssertionError, match="Error: .*contiguous") as failed:
        pool.run(strided, 2, transport="sockets")
    cause = str(failed.value).split("worker 0 failed:")[1]  # the other one may lose its peer before that
    assert "PeerLost" not in cause


@pytest.mark.parametrize("failed, called", [(True, "abort"), (False, "destroy")])
def test_a_group_that_does_not_end_is_left(monkeypatch, failed, called):
    """As NCCL's may not, whose operations under way wait for a peer that is gone."""
    calls, ended, free, begun = [], [], threading.Event(), threading.Event()

    def stays(name: str) -> None:
        calls.append(name)
        begun.set()
        ended.append(free.wait(60))

    monkeypatch.setattr(group, "LEAVING", 0.1)
    monkeypatch.setattr(dist, "get_backend", lambda: "cpu:gloo,cuda:nccl")
    for name, place in (("abort", dist.distributed_c10d), ("destroy", dist)):
        function = "_abort_process_group" if name == "abort" else "destroy_process_group"
        monkeypatch.setattr(place, function, lambda name=name: stays(name))
    group._leave(failed)
    assert begun.wait(30) and calls == [called] and not ended
    free.set()


def test_workers_that_have_heard_of_each_other_and_do_not_connect_end_in_time(tmp_path, monkeypatch):
    """As where the link goes down between the two: torch then waits for the store for ever."""
    monkeypatch.setattr(watch, "GRACE", 0.1)
    met, ended = Meeting(1, 2, str(tmp_path / "store"), 0.1), Ended()
    with meeting_in_time(met, ended):
        assert not ended.called.wait(0.5)  # its launcher's to end
    met.under_launcher = True
    with meeting_in_time(met, ended):
        pass
    assert not ended.called.wait(0.5)
    with meeting_in_time(met, ended):
        assert ended.called.wait(30)
    (sentence,) = ended.said
    assert "could not reach the others within rendezvous=0.1 s, though all had come" in sentence
