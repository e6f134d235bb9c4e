"""How workers agree before they form a group, whoever else writes to their store."""

import contextlib
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm import members
from harness.comm.meeting import Marks, Meeting
from harness.comm.members import Member, WorkerPlace, myself, seated
from harness.comm.transport import PeerLost

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
    "gpus, device, devices, backend, note, sharing",
    [
        # One visible GPU per task, as under SLURM: each is number 0, and they are two.
        ([("h", "x"), ("h", "y")], "auto", ["cuda:0"] * 2, "cpu:gloo,cuda:nccl", "", [1, 1]),
        ([("h", "x", "y"), ("h", "x", "y")], "auto", ["cuda:0", "cuda:1"], "cpu:gloo,cuda:nccl", "", [1, 1]),
        (
            [("h", "x", "y")] * 3 + [("i", "z")],
            "auto",
            ["cuda:0", "cuda:1", "cuda:0", "cuda:0"],
            "gloo",
            "4 workers share 3 GPUs: rows travel",
            [2, 1, 2, 1],
        ),
        ([("h", "x"), ("i",)], "auto", ["cpu"] * 2, "gloo", "no CUDA device is visible to worker 1", [1, 1]),
        ([("h", "x"), ("h", "z"), ("i",)], "cpu", ["cpu"] * 3, "gloo", "", [2, 2, 1]),
    ],
)
def test_unequal_hosts_and_shared_gpus_are_said(gpus, device, devices, backend, note, sharing):
    found = [Member(host, tuple(names)) for host, *names in gpus]
    taken = [seated(found, rank, device) for rank in range(len(found))]
    assert [str(seat.device) for seat in taken] == devices and taken[0].backend == backend
    assert note in taken[0].note and bool(note) == bool(taken[0].note)
    assert [seat.sharing for seat in taken] == sharing


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


def test_who_did_not_come_is_named_after_the_time_that_was_given(tmp_path):
    with pytest.raises(PeerLost, match=r"^workers 1 and 3 of 4 did not come within rendezvous=0\.3 s; see"):
        meeting = Meeting(2, 4, str(tmp_path / "store"), 0.3)
        Meeting(0, 4, str(tmp_path / "store")).store.set("member/0", "1")
        meeting.tell("member", 1)


def refused(met: Meeting) -> str:
    with pytest.raises(InputError) as error:
        met.tell("host", met.rank)
    return str(error.value)


@pytest.mark.parametrize("theirs", [b"other", None])
def test_hosts_that_have_not_the_same_secret_say_which(tmp_path, monkeypatch, theirs):
    monkeypatch.setattr("harness.comm.meeting.ANSWER", 1.0)

    def work(rank: int) -> str:
        met = Meeting(rank, 3, str(tmp_path / "store"), 30, b"one" if rank < 2 else theirs)
        met.host = "ab"[rank == 2]
        return refused(met)

    with ThreadPoolExecutor(3) as threads:
        first, second, third = threads.map(work, range(3))
    assert first == second and first.startswith(
        "worker 2 (host b) and worker 0 (host a) do not sign with the same"
    )
    assert "HALOBENCH_SECRET" in first and (third == first) == (theirs is not None)
    assert third == first or third.startswith(
        "worker 2 (host b) has no secret of the run; give that host HALOB"
    )


def test_what_a_stranger_has_written_is_no_workers_word(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.comm.meeting.ANSWER", 0.1)
    for k, written in enumerate(["junk", "\n" * 9, json.dumps([1]), b"\xff\x1b".decode("latin1")]):
        met = Meeting(0, 2, str(tmp_path / f"store{k}"), 1, b"secret")
        met.store.set("host/1", written)
        said = refused(met)
        assert said.startswith("worker 1 (host ") and "\x1b" not in said


def test_an_earlier_start_that_a_stranger_puts_back_is_no_start(tmp_path, monkeypatch):
    """A stranger heard all of an earlier start, which was signed with the same secret, and repeats it."""
    monkeypatch.setattr("harness.comm.meeting.ANSWER", 0.1)
    earlier = [Meeting(k, 2, str(tmp_path / "store"), 1, b"secret") for k in range(2)]
    heard = {f"host/{k}": met.signed(f"host/{k}", met.rank) for k, met in enumerate(earlier)}
    met = Meeting(0, 2, str(tmp_path / "store"), 1, b"secret")
    store = met.store
    store.set("host/1", heard["host/1"])
    met.store = SimpleNamespace(  # the last word is the stranger's
        set=lambda key, value: store.set(key, heard.get(key, value)),
        wait=store.wait, check=store.check, get=store.get,
    )  # fmt: skip
    assert "do not sign with the same secret" in refused(met) and not met.start


THREE = st.tuples(*[st.sampled_from(["", "a", "b"])] * 3)


@given(own=THREE, other=THREE, value=st.text(max_size=4), place=st.floats(0, 1, exclude_max=True))
def test_only_a_signed_value_under_its_own_key_in_its_own_start_is_genuine(own, other, value, place):
    def made(key: str, start: str, secret: str) -> tuple[Meeting, str]:
        met = Meeting(0, 1, secret=secret.encode())
        met.start = start
        return met, key

    (met, key), (another, found) = made(*own), made(*other)
    raw = met.signed(key, value).encode()
    said = another.opened(found, raw)
    assert said.genuine == (own == other) and json.loads(said.text) == value
    at = int(place * len(raw))
    assert not met.opened(key, raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]).genuine


def test_only_the_first_failure_of_a_worker_is_heard_whatever_a_stranger_says(tmp_path):
    first, second = (Meeting(k, 2, str(tmp_path / "store"), 5, b"secret") for k in range(2))
    first.store.set("failed", json.dumps([1, "its disk is full"]))
    assert first.failure() == ""
    second.fail("its disk\x1b[2J is full")
    first.fail("lost a peer")
    assert first.failure() == second.failure() == "worker 1 failed: its disk\\x1b[2J is full"


def test_a_strangers_marks_and_copies_of_older_ones_move_nobody(tmp_path):
    met = Meeting(0, 2, str(tmp_path / "store"), 5, b"secret")
    marks = Marks(met)
    met.store.set("mark/1", "[9, 9]")
    marks.set(3)
    older = met.store.get("mark/0")
    marks.set(4)
    assert marks.read() == [(2, 4), (0, -1)]
    met.store.set("mark/0", older)
    assert marks.read() == [(2, 4), (0, -1)]


class Impostor(threading.Thread):
    """Accepts whoever connects, and sends them `words` again and again; None: closes at once."""

    def __init__(self, words: bytes | None):
        super().__init__(daemon=True)
        self.words, self.listener, self.held = words, socket.create_server(("127.0.0.1", 0)), []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.held.append(self.listener.accept()[0])
                if self.words is None:
                    self.held.pop().close()
                else:
                    self.held[-1].sendall(self.words)


@pytest.mark.parametrize("words", [b"", b"\x05\xff" * 500, None], ids=["silent", "nonsense", "closes"])
def test_an_impostor_on_the_stores_port_is_told_within_the_time_that_was_given(monkeypatch, words):
    impostor = Impostor(words)
    impostor.start()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(impostor.listener.getsockname()[1]))
    began = time.monotonic()
    with pytest.raises(
        PeerLost, match=r"^worker 1 \(host .*\) could not reach the store .* within rendezvous=0.3 s \("
    ):
        Meeting(1, 2, seconds=0.3, secret=b"secret")
    assert time.monotonic() - began < 10
    impostor.listener.close()


def test_a_store_that_answers_no_more_is_told_within_the_time_that_was_given(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.comm.meeting.ANSWER", 0.1)
    met, free = Meeting(0, 2, str(tmp_path / "store"), 0.1), threading.Event()
    monkeypatch.setattr(met, "_told", lambda *words: free.wait(60))
    met.under_launcher = True  # of several hosts: its store is another process
    with pytest.raises(
        PeerLost, match=r"^worker 0 \(host .*\) got no answer from the store within rendezvous=0\.1 s"
    ):
        met.tell("host", 0)
    met.store = SimpleNamespace(check=lambda keys: free.wait(60), set=lambda *words: free.wait(60))
    assert met.failure() == ""
    met.fail("its disk is full")  # returns
    free.set()


def test_who_keeps_the_store_says_that_others_did_not_reach_it(monkeypatch):
    free = threading.Event()

    def waits(*_, **__):
        free.wait(60)
        yield

    monkeypatch.setattr("harness.comm.meeting.dist.rendezvous", waits)
    with pytest.raises(PeerLost, match=r"^worker 0 \(host .*\) keeps the store at MASTER_PORT, .*ndezvous=0"):
        Meeting(0, 2, seconds=0.1, secret=b"secret")
    free.set()
