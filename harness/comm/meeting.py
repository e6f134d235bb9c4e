"""Where the workers of a run meet before they form a group: a store of a few values that all of them read."""

from __future__ import annotations

import contextlib
import datetime
import json
from typing import Any

import torch.distributed as dist

from harness.comm.members import Member, workers
from harness.comm.transport import PeerLost

RENDEZVOUS = 300.0  # seconds
FAILED = "failed"


class Meeting:
    """One worker's access to the store, from which it learns who the others are.

    path      a file that all workers of one host meet in; None: the store that torchrun's environment names
    seconds   that a worker waits for the others

    Raises PeerLost where the store that the environment names cannot be reached.
    """

    def __init__(self, rank: int, size: int, path: str | None = None, seconds: float = RENDEZVOUS):
        self.rank, self.size, self.seconds = rank, size, seconds
        self.under_launcher = path is None and size > 1
        self.store: dist.Store | None = None
        if size == 1:
            return
        wait = datetime.timedelta(seconds=seconds)
        if path is not None:
            self.store = dist.FileStore(path, size)
        else:
            try:
                self.store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=wait))
            except (RuntimeError, ValueError) as error:
                raise PeerLost(
                    f"worker {rank} could not reach the store that MASTER_ADDR and MASTER_PORT name within"
                    f" rendezvous={seconds:g} s ({first_line(error)})"
                ) from error
        self.store.set_timeout(wait)

    def tell(self, name: str, value: Any) -> list[Any]:
        """Every worker's value, in rank order; `value` is this worker's, as JSON has it. Collective.

        Raises PeerLost, which names the workers that did not come, after `seconds`.
        """
        if self.store is None:
            return [json.loads(json.dumps(value))]
        keys = [f"{name}/{k}" for k in range(self.size)]
        self.store.set(keys[self.rank], json.dumps(value))
        missing: list[int] = []
        for k, key in enumerate(keys):
            try:
                # Who did not come while this worker waited for another is not waited for again.
                if missing and not self.store.check([key]):
                    missing.append(k)
                elif not missing:
                    self.store.wait([key])
            except RuntimeError as error:
                if "imeout" not in str(error):
                    raise PeerLost(f"worker {self.rank} lost the store: {first_line(error)}") from error
                missing.append(k)
        if missing:
            raise PeerLost(
                f"{workers(missing)} of {self.size} did not come within rendezvous={self.seconds:g} s;"
                " see why on their hosts, or give rendezvous=SECONDS"
            )
        return [json.loads(self.store.get(key)) for key in keys]

    def members(self, own: Member) -> list[Member]:
        """All workers, by rank. Collective."""
        told = self.tell("member", [own.host, own.gpus, own.wrong])
        return [Member(host, tuple(gpus), wrong) for host, gpus, wrong in told]

    def fail(self, sentence: str) -> None:
        """Tell the others why this worker ends; the first that does is the one that is heard."""
        if self.store is not None:
            with contextlib.suppress(RuntimeError):  # the store may be gone with the host it was on
                self.store.compare_set(FAILED, "", json.dumps([self.rank, sentence]))

    def failure(self, store: dist.Store | None = None) -> str:
        """What the first worker that failed said, and which it was; "" where none has."""
        store = store or self.store
        with contextlib.suppress(RuntimeError):
            if store is not None and store.check([FAILED]):
                rank, sentence = json.loads(store.get(FAILED))
                return f"worker {rank} failed: {sentence}"
        return ""


class Marks:
    """What workers tell each other of how far they are, for a thread that watches them.

    A mark is the number of times that a worker was seen to have moved, and the epoch it was in.
    """

    def __init__(self, meeting: Meeting):
        assert meeting.store is not None
        # A connection of its own: the training thread may wait in the store's other one.
        store: Any = meeting.store  # torch's stub lacks `clone`
        self.meeting, self.store = meeting, store.clone()
        self.store.set_timeout(datetime.timedelta(seconds=5))
        self.moved = 0
        self.last: list[tuple[int, int]] = [(0, -1)] * meeting.size

    def set(self, epoch: int) -> None:
        """This worker has moved, and is in `epoch`."""
        self.moved += 1
        with contextlib.suppress(RuntimeError):
            self.store.set(f"mark/{self.meeting.rank}", json.dumps([self.moved, epoch]))

    def read(self) -> list[tuple[int, int]]:
        """Every worker's latest mark; the one before where the store does not answer."""
        for k in range(self.meeting.size):
            with contextlib.suppress(RuntimeError):
                if self.store.check([f"mark/{k}"]):
                    moved, epoch = json.loads(self.store.get(f"mark/{k}"))
                    self.last[k] = moved, epoch
        return list(self.last)

    def failure(self) -> str:
        """As the meeting's."""
        return self.meeting.failure(self.store)


def first_line(error: BaseException) -> str:
    """What an error says first, without the end of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
