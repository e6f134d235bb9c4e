"""The parameter server's process: it holds the weights W [w] and applies the updates u [w] that arrive.

    without an optimiser   W <- W + scale * u        u is a worker's change of the weights
    with an optimiser      W <- Adam(W, scale * u)   u is a worker's gradient; all workers share the moments

Started by `harness.comm.parameters`; imports neither torch nor what needs it. It listens on a Unix
socket that only this user can reach, and takes one connection per worker. It ends when worker 0 does: its
standard input is a pipe from worker 0, which then closes.

A request is the name of a method of `ParameterServer` and its arguments; an answer is what the method
returns, (version, number, body). Its version is the number of updates that its body holds.

The clock starts with the first update. A resumed run loads what the clock had run before, and it goes on from
there with the next update. The state [1, w] is the weights; with an optimiser [3, w]: weights, first and
second moment.
"""

import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from harness.base.machine import end_with, limit_reached

Answer = tuple[int, float | None, np.ndarray]


@dataclass(frozen=True)
class Settings:
    """What a server is started with.

    workers  how many workers there are, P
    order    "arrival": updates are applied as they come; "rotation": in the order of ranks, again and again,
             so that a run repeats bit for bit
    scale    what an update is multiplied by
    dtype    the type of the weights
    adam     keywords of `Adam`: updates are gradients; None: updates are added to the weights
    updates  how many updates the whole run has: later ones are not applied
    """

    workers: int
    order: str
    scale: float
    dtype: str
    adam: dict[str, float] | None
    updates: int

    @property
    def rows(self) -> int:
        """Rows of the state."""
        return 1 if self.adam is None else 3


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015, Algorithm 1) with weight decay added to the gradient, as torch.optim.Adam
    has it, in the weights' own precision."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float

    def step(self, weights: np.ndarray, gradient: np.ndarray, moments: np.ndarray, t: int) -> np.ndarray:
        """The weights [w] after step t = 1, 2, ...; `moments` [2, w] are updated in place."""
        first, second = moments
        gradient = gradient + self.weight_decay * weights
        first += (1 - self.beta1) * (gradient - first)
        second *= self.beta2
        second += (1 - self.beta2) * gradient * gradient
        # The moments began at 0: divided by 1 - beta^t they are unbiased.
        size = np.sqrt(second) / math.sqrt(1 - self.beta2**t) + self.eps
        stepped: np.ndarray = weights - self.lr / (1 - self.beta1**t) * (first / size)
        return stepped


class ParameterServer:
    """The weights and what was applied to them. Each worker's connection has a thread that calls these
    methods; one at a time holds the lock `changed`."""

    def __init__(self, settings: Settings):
        self.settings, self.dtype = settings, np.dtype(settings.dtype)
        self.adam = None if settings.adam is None else Adam(**settings.adam)
        self.scale = self.dtype.type(settings.scale)
        self.version = 0  # updates applied
        self.weights, self.moments = np.zeros(0, self.dtype), np.zeros((settings.rows - 1, 0), self.dtype)
        self.snapshots: dict[int, tuple[float, np.ndarray]] = {}  # epoch: (when, weights)
        self.asked: dict[int, int] = {}  # epoch: how many workers have had its snapshot
        self.changed = threading.Condition()
        self.before = 0.0  # seconds that the clock had run when the state was loaded
        self.started: float | None = None  # when the first update after that was applied

    def elapsed(self) -> float:
        """Seconds that the clock has run."""
        return self.before + (time.monotonic() - self.started if self.started is not None else 0.0)

    def update(self, rank: int, epoch: int, base: int, update: np.ndarray) -> Answer:
        """Apply u, computed from version `base` of the weights. The body is the weights after it; the number
        is the delay, the updates applied since that version. After the run's last update nothing is applied,
        and the number is None."""
        workers = self.settings.workers
        with self.changed:
            if self.settings.order == "rotation":
                self.changed.wait_for(lambda: self.version == epoch * workers + rank)
            if self.version == self.settings.updates:
                return self.version, None, self.weights
            self.started = self.started if self.started is not None else time.monotonic()
            delay = self.version - base
            self.version += 1
            update = self.scale * update
            # A new array each time: snapshots keep the old one. Adam's t is the number of updates applied.
            if self.adam is None:
                self.weights = self.weights + update
            else:
                self.weights = self.adam.step(self.weights, update, self.moments, self.version)
            if self.version % workers == 0:
                self.snapshots[self.version // workers - 1] = (self.elapsed(), self.weights)
            self.changed.notify_all()
            return self.version, delay, self.weights

    def snapshot(self, epoch: int) -> Answer:
        """As soon as (epoch + 1) P updates are applied: the weights after them, and when that was, in seconds
        of the clock."""
        workers = self.settings.workers
        with self.changed:
            self.changed.wait_for(lambda: epoch in self.snapshots)
            when, weights = self.snapshots[epoch]
            self.asked[epoch] = self.asked.get(epoch, 0) + 1
            if self.asked[epoch] == workers:  # epochs are evaluated in order: nobody asks for earlier ones
                self.snapshots = {e: kept for e, kept in self.snapshots.items() if e > epoch}
                self.asked = {}
            return (epoch + 1) * workers, when, weights

    def load(self, version: int, elapsed: float, state: np.ndarray) -> Answer:
        """Go on from a state to which `version` updates have been applied, `elapsed` seconds by the clock."""
        with self.changed:
            rows = state.reshape(self.settings.rows, -1).copy()
            self.weights, self.moments, self.version = rows[0], rows[1:], version
            self.before, self.started = elapsed, None
            return version, 0.0, state[:0]

    def read(self) -> Answer:
        """The state, and the seconds that the clock has run."""
        with self.changed:
            return self.version, self.elapsed(), np.concatenate([self.weights, *self.moments])

    def serve(self, connection: Connection) -> None:
        """Answer one worker until it closes the connection, which it may do before it has its answer."""
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                method, arguments = connection.recv()
                connection.send(getattr(self, method)(*arguments))


def _end_with_parent() -> None:
    # not sys.stdin: this thread would hold its lock, for which the interpreter waits when it ends
    while os.read(0, 1):
        pass
    os._exit(0)


def main(path: str, settings: Settings) -> None:
    """Serve all workers at the Unix socket `path`, until they or worker 0 have gone."""
    folder, name = os.path.split(path)
    os.chdir(folder)  # the whole path may be longer than the address of a socket can be
    end_with(os.getppid())
    server = ParameterServer(settings)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen(settings.workers)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        print("ready", flush=True)
        accepted = (Connection(listening.accept()[0].detach()) for _ in range(settings.workers))
        threads = [threading.Thread(target=server.serve, args=(connection,)) for connection in accepted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    try:
        main(sys.argv[1], Settings(**json.loads(sys.argv[2])))
    except Exception as error:
        if (limit := limit_reached(error)) is None:
            raise
        print(limit, flush=True)  # in the place of "ready", for the worker that waits for it
        sys.exit(1)
