"""Where the workers of a run meet before they form a group: a store of a few values that all of them read.

torchrun's store is open to whoever reaches its port. So each value is signed with a secret of the run. The
signature also covers the value's key, and numbers that the workers draw anew at each start. So no worker
accepts what a stranger writes, nor what a stranger has copied from another key or from an earlier start.
"""

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

from harness.base.errors import InputError, first_line, listed
from harness.base.terminal import printable
from harness.comm.members import Member, workers
from harness.comm.transport import PeerLost

Result = TypeVar("Result")

RENDEZVOUS = 300.0  # seconds
ANSWER = 5.0  # seconds that a store which can be reached may take to answer
FAILED = "failed"


def background(work: Callable[[], Result]) -> Future[Result]:
    """Start work() on a daemon thread, which does not keep the process from ending: a store whose host is
    gone may never answer, and torch waits for it without a limit.
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

    host      the host of the worker that wrote it; "?" where what stands there cannot be read
    nonce     the number that its writer drew for this start
    text      the value, as JSON; to be read only where it is genuine
    genuine   whether it is signed with the secret that this host has
    """

    host: str = "?"
    nonce: str = ""
    text: str = ""
    genuine: bool = False


class Meeting:
    """One worker's access to the store, from which it learns who the others are.

    path      a file in which all workers of one host meet; None: the store that torchrun's environment names
    seconds   how long a worker waits for the others
    secret    the run's secret; None: this host has none. Not needed with `path`

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
                # Worker 0 keeps the store, and waits in torch for the others; under torchrun its agent does.
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
            # The store may end with this worker, so first wait until the others have read this value too.
            leaving = background(lambda: self._told("left", None))
            with contextlib.suppress(TimeoutError, PeerLost):
                leaving.result(min(self.seconds, ANSWER))
            raise InputError(wrong)
        self.start = self.start or hashlib.sha256("".join(each.nonce for each in said).encode()).hexdigest()
        return [json.loads(each.text) for each in said]

    def _answered(self, ask: Callable[[], Result], seconds: float) -> Result:
        """Return ask(), a question to the store. TimeoutError where the store of a launcher has not answered
        within `seconds`. A file answers at once, so it is asked without a thread, which a worker that has run
        out of memory could not start."""
        return background(ask).result(seconds) if self.under_launcher else ask()

    def _told(self, name: str, value: Any) -> list[Said]:
        """`tell`, without a look at the signatures."""
        assert self.store is not None
        keys = [f"{name}/{k}" for k in range(self.size)]
        missing: list[int] = []
        try:
            self.store.set(keys[self.rank], self.signed(keys[self.rank], value))
            for k, key in enumerate(keys):
                try:
                    # Once one worker has not come in time, the others are looked up without waiting.
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
        """One sentence that names who lacks the run's secret, the same on all hosts that have a secret; ""
        where all have signed with this one.
        """
        if self.secret is None:
            return (
                f"worker {self.rank} (host {self.host}) has no secret of the run; give that host"
                " HALOBENCH_SECRET, what RUN_DIR/secret holds on the host of worker 0, or prepare the run"
                " again with launch=prepare"
            )
        # If this worker's own key holds a nonce that it did not draw, a stranger has put an old value there.
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
        """What to store under `key` so that others read `value` there, which JSON must be able to hold."""
        text = json.dumps(value)
        return "\n".join([self._signature(key, self.host, self.nonce, text), self.host, self.nonce, text])

    def opened(self, key: str, raw: bytes) -> Said:
        """`raw`, which was found under `key`, taken apart, and its signature checked."""
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
        """Tell the others why this worker ends. Does nothing where another worker has said so before."""
        store = self.store
        if store is None or self.failure():
            return
        with contextlib.suppress(RuntimeError, TimeoutError):  # gone with the host it was on
            self._answered(lambda: store.set(FAILED, self.signed(FAILED, [self.rank, sentence])), ANSWER)

    def failure(self, store: dist.Store | None = None) -> str:
        """The first failure that a worker has told of, with its rank; "" where none has. `store`: the
        connection to ask; None: the meeting's own."""
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
        """What a worker of this run has said under `key`; None where nothing genuine stands there."""
        said = self.opened(key, store.get(key)) if store.check([key]) else None
        return said if said is not None and said.genuine else None


class Marks:
    """How far each worker is, as they tell each other through the store, for a thread that watches them.

    A mark of a worker is (how many times it was seen to have moved, the epoch it was in).
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
        """Every worker's latest mark, by rank; the last known one where the store does not answer."""
        for k in range(self.meeting.size):
            with contextlib.suppress(RuntimeError):
                if said := self.meeting.found(self.store, f"mark/{k}"):
                    moved, epoch = json.loads(said.text)
                    self.last[k] = max(self.last[k], (moved, epoch))  # an older one may be a stranger's copy
        return list(self.last)

    def failure(self) -> str:
        """`Meeting.failure`, asked over this connection."""
        return self.meeting.failure(self.store)
