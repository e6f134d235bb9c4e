"""Where the workers of a run meet before they form a group: a store of a few values that all of them read.

torchrun's store is open to whoever reaches its port. So each value carries a signature by a secret of the
run, over the key that it stands under and over numbers that every worker has drawn for this start alone: what
a stranger writes, or repeats from an earlier start, is not taken for a worker's word.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import secrets
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from harness.base.errors import InputError, listed
from harness.base.terminal import printable
from harness.comm.members import Member, workers
from harness.comm.transport import PeerLost

Result = TypeVar("Result")

RENDEZVOUS = 300.0  # seconds
ANSWER = 5.0  # seconds that a store which is there may take over an answer
FAILED = "failed"


def background(work: Callable[[], Result]) -> Future[Result]:
    """work(), on a thread that does not keep the process: a store whose host is gone may never answer, and
    torch waits for it without a limit.
    """
    future: Future[Result] = Future()

    def answer() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=answer, name="store", daemon=True).start()
    return future


@dataclass(frozen=True)
class Said:
    """What stands in the store under a key.

    text      as JSON has it; to be read only where it is `genuine`, signed with this worker's secret
    """

    host: str = "?"
    nonce: str = ""
    text: str = ""
    genuine: bool = False


class Meeting:
    """One worker's access to the store, from which it learns who the others are.

    path      a file that all workers of one host meet in; None: the store that torchrun's environment names
    seconds   that a worker waits for the others
    secret    the run's; None: this host has none. The file of `path` needs none

    Raises PeerLost where the store that the environment names cannot be reached.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        path: str | None = None,
        seconds: float = RENDEZVOUS,
        secret: bytes | None = b"",
    ):
        self.rank, self.size, self.seconds, self.secret = rank, size, seconds, secret
        self.host, self.nonce, self.start = socket.gethostname(), secrets.token_hex(16), ""
        self.under_launcher = path is None and size > 1
        self.store: dist.Store | None = None
        if size == 1:
            return
        wait = datetime.timedelta(seconds=seconds)
        if path is not None:
            self.store = dist.FileStore(path, size)
        else:
            reaching = background(lambda: next(dist.rendezvous("env://", rank, size, timeout=wait)))
            try:
                self.store, _, _ = reaching.result(seconds + 1)
            except (RuntimeError, ValueError, TimeoutError) as error:
                silent = isinstance(error, TimeoutError)
                # Who keeps the store waits in torch for the others; torchrun's agent keeps its own.
                if silent and rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
                    raise PeerLost(
                        f"worker 0 (host {self.host}) keeps the store at MASTER_PORT, and not all of the"
                        f" {size} workers came there within rendezvous={seconds:g} s; see why on their hosts,"
                        " or give rendezvous=SECONDS"
                    ) from error
                raise PeerLost(
                    f"worker {rank} (host {self.host}) could not reach the store that MASTER_ADDR and"
                    f" MASTER_PORT name within rendezvous={seconds:g} s"
                    f" ({'what listens there does not answer' if silent else first_line(error)})"
                ) from error
        self.store.set_timeout(wait)

    def tell(self, name: str, value: Any) -> list[Any]:
        """Every worker's value, in rank order; `value` is this worker's, as JSON has it. Collective.

        Raises PeerLost, which names the workers that did not come, after `seconds`; InputError where what
        stands there is not signed with the run's secret.
        """
        if self.store is None:
            return [json.loads(json.dumps(value))]
        try:
            said = self._answered(lambda: self._told(name, value), self.seconds + ANSWER)
        except TimeoutError:
            raise PeerLost(
                f"worker {self.rank} (host {self.host}) got no answer from the store within"
                f" rendezvous={self.seconds:g} s; see whether the host of worker 0 can be reached"
            ) from None
        if wrong := self._unsigned(said):
            # The store may end with this worker: not before the others have read it.
            leaving = background(lambda: self._told("left", None))
            with contextlib.suppress(TimeoutError, PeerLost):
                leaving.result(min(self.seconds, ANSWER))
            raise InputError(wrong)
        self.start = self.start or hashlib.sha256("".join(each.nonce for each in said).encode()).hexdigest()
        return [json.loads(each.text) for each in said]

    def _answered(self, ask: Callable[[], Result], seconds: float) -> Result:
        """ask(), of the store; TimeoutError where it is another process's and has not answered in time. A
        file answers at once, and needs no thread, which a worker without memory could not start."""
        return background(ask).result(seconds) if self.under_launcher else ask()

    def _told(self, name: str, value: Any) -> list[Said]:
        """`tell`, but that what was said is not looked at."""
        assert self.store is not None
        keys = [f"{name}/{k}" for k in range(self.size)]
        missing: list[int] = []
        try:
            self.store.set(keys[self.rank], self.signed(keys[self.rank], value))
            for k, key in enumerate(keys):
                try:
                    # Who did not come while this worker waited for another is not waited for again.
                    if missing and not self.store.check([key]):
                        missing.append(k)
                    elif not missing:
                        self.store.wait([key])
                except RuntimeError as error:
                    if "imeout" not in str(error):
                        raise
                    missing.append(k)
            if not missing:
                return [self.opened(key, self.store.get(key)) for key in keys]
        except RuntimeError as error:
            raise PeerLost(f"worker {self.rank} lost the store: {first_line(error)}") from error
        raise PeerLost(
            f"{workers(missing)} of {self.size} did not come within rendezvous={self.seconds:g} s;"
            " see why on their hosts, or give rendezvous=SECONDS"
        )

    def _unsigned(self, said: list[Said]) -> str:
        """Who has not the secret of the run, in one sentence, the same on all hosts that have one; "" where
        everybody has.
        """
        if self.secret is None:
            return (
                f"worker {self.rank} (host {self.host}) has no secret of the run; give that host"
                " HALOBENCH_SECRET, what RUN_DIR/secret holds on the host of worker 0, or prepare the run"
                " again with launch=prepare"
            )
        # What a worker has not drawn itself for this start is of another, put back by somebody who heard it.
        own = said[self.rank].nonce == self.nonce
        alike = [k for k, each in enumerate(said) if each.genuine and (own or k != self.rank)]
        others = [k for k in range(len(said)) if k not in alike]
        if not others:
            return ""
        odd = others if 0 in alike or not alike else alike
        hosts = listed(dict.fromkeys(said[k].host for k in odd))
        return (
            f"{workers(odd)} (host {hosts}) and worker 0 (host {listed([said[0].host])}) do not sign with the"
            " same secret; give both hosts HALOBENCH_SECRET, what RUN_DIR/secret holds on that of worker 0,"
            " and see who else reaches MASTER_PORT"
        )

    def signed(self, key: str, value: Any) -> str:
        """What to set `key` to for others to find `value`, as JSON has it."""
        text = json.dumps(value)
        return "\n".join([self._signature(key, self.host, self.nonce, text), self.host, self.nonce, text])

    def opened(self, key: str, raw: bytes) -> Said:
        """What was found under `key`."""
        try:
            signature, host, nonce, text = raw.decode().split("\n", 3)
        except ValueError:
            return Said()
        made = self._signature(key, host, nonce, text)
        genuine = self.secret is not None and hmac.compare_digest(signature.encode(), made.encode())
        return Said(host, nonce, text, genuine)

    def _signature(self, *words: str) -> str:
        return hmac.new(self.secret or b"", json.dumps([self.start, *words]).encode(), "sha256").hexdigest()

    def members(self, own: Member) -> list[Member]:
        """All workers, by rank. Collective."""
        told = self.tell("member", [own.host, own.gpus, own.wrong])
        return [Member(host, tuple(gpus), wrong) for host, gpus, wrong in told]

    def fail(self, sentence: str) -> None:
        """Tell the others why this worker ends; the first that does is the one that is heard."""
        store = self.store
        if store is None or self.failure():
            return
        with contextlib.suppress(RuntimeError, TimeoutError):  # gone with the host it was on
            self._answered(lambda: store.set(FAILED, self.signed(FAILED, [self.rank, sentence])), ANSWER)

    def failure(self, store: dist.Store | None = None) -> str:
        """What the first worker that failed said, and which it was; "" where none has."""
        found = store or self.store
        if found is None:
            return ""
        with contextlib.suppress(RuntimeError, TimeoutError):
            said = self._answered(lambda: self.found(found, FAILED), ANSWER)
            if said is not None:
                rank, sentence = json.loads(said.text)
                return printable(f"worker {rank} failed: {sentence}")
        return ""

    def found(self, store: dist.Store, key: str) -> Said | None:
        """What a worker of this run has said under `key`; None where none has."""
        said = self.opened(key, store.get(key)) if store.check([key]) else None
        return said if said is not None and said.genuine else None


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
        key = f"mark/{self.meeting.rank}"
        with contextlib.suppress(RuntimeError):
            self.store.set(key, self.meeting.signed(key, [self.moved, epoch]))

    def read(self) -> list[tuple[int, int]]:
        """Every worker's latest mark; the one before where the store does not answer."""
        for k in range(self.meeting.size):
            with contextlib.suppress(RuntimeError):
                if said := self.meeting.found(self.store, f"mark/{k}"):
                    moved, epoch = json.loads(said.text)
                    self.last[k] = max(self.last[k], (moved, epoch))  # an older one may be a stranger's copy
        return list(self.last)

    def failure(self) -> str:
        """As the meeting's."""
        return self.meeting.failure(self.store)


def first_line(error: BaseException) -> str:
    """What an error says first, without the end of a sentence."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
