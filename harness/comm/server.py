"""The parameter server's process: it holds the weights and adds what arrives, `W <- W + scale * delta`.

Started by `harness.comm.parameters`; imports neither torch nor the rest of the harness. It listens on a Unix socket that only this
user can reach, takes one connection a worker, and ends with worker 0, whose end of its standard input it watches.

A request is (op, rank, epoch, version, bytes) and a body, an answer (version, number, bytes) and a body; bodies are the flat weights:

    update    body delta, version of the weights it was computed from -> weights after adding it, number = delay: updates added since
    snapshot  of an epoch e -> the weights after (e + 1) P updates, once there; number = when, seconds since the first update arrived
    load      body weights, version = updates they hold, epoch = microseconds the clock has run
    read      -> weights, number = seconds the clock has run
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time

import numpy as np

REQUEST = struct.Struct("<cIqqQ")
ANSWER = struct.Struct("<qdQ")
UPDATE, SNAPSHOT, LOAD, READ = b"u", b"s", b"l", b"r"


class ParameterServer:
    """order "arrival": updates are added as they come; "rotation": worker 0, 1, ..., P - 1 and again, whoever comes first, so that
    a run repeats bit for bit."""

    def __init__(self, workers: int, order: str, scale: float, dtype: str):
        self.workers, self.order, self.scale, self.dtype = workers, order, scale, np.dtype(dtype)
        self.weights, self.version = np.zeros(0, self.dtype), 0
        self.snapshots: dict[int, tuple[float, np.ndarray]] = {}  # epoch: (when, weights)
        self.asked: dict[int, int] = {}  # epoch: workers that have had its snapshot
        self.changed = threading.Condition()
        self.before, self.started = 0.0, None  # seconds before a resume; when the first update came since

    def elapsed(self) -> float:
        return self.before + (time.monotonic() - self.started if self.started is not None else 0.0)

    def update(self, rank: int, epoch: int, base: int, delta: np.ndarray) -> tuple[int, float, np.ndarray]:
        with self.changed:
            if self.order == "rotation":
                self.changed.wait_for(lambda: self.version == epoch * self.workers + rank)
            self.started = self.started if self.started is not None else time.monotonic()
            delay = self.version - base
            self.weights = self.weights + self.weights.dtype.type(self.scale) * delta  # a new array: snapshots keep the old one
            self.version += 1
            if self.version % self.workers == 0:
                self.snapshots[self.version // self.workers - 1] = (self.elapsed(), self.weights)
            self.changed.notify_all()
            return self.version, delay, self.weights

    def snapshot(self, epoch: int) -> tuple[int, float, np.ndarray]:
        with self.changed:
            self.changed.wait_for(lambda: epoch in self.snapshots)
            when, weights = self.snapshots[epoch]
            self.asked[epoch] = self.asked.get(epoch, 0) + 1
            if self.asked[epoch] == self.workers:  # epochs are evaluated in order: nobody asks for earlier ones again
                self.snapshots = {e: kept for e, kept in self.snapshots.items() if e > epoch}
                self.asked = {}
            return (epoch + 1) * self.workers, when, weights

    def load(self, version: int, microseconds: int, weights: np.ndarray) -> tuple[int, float, np.ndarray]:
        with self.changed:
            self.weights, self.version = weights, version
            self.before, self.started = microseconds / 1e6, None
            return version, 0.0, weights[:0]

    def serve(self, connection: socket.socket) -> None:
        """Answer one worker until it hangs up."""
        with connection:
            while (header := receive(connection, REQUEST.size)) is not None:
                op, rank, epoch, version, size = REQUEST.unpack(header)
                body = np.frombuffer(receive(connection, size) or b"", self.dtype)
                if op == UPDATE:
                    answer = self.update(rank, epoch, version, body)
                elif op == SNAPSHOT:
                    answer = self.snapshot(epoch)
                elif op == LOAD:
                    answer = self.load(version, epoch, body)
                else:
                    answer = (self.version, self.elapsed(), self.weights)
                version, number, weights = answer
                connection.sendall(ANSWER.pack(version, number, weights.nbytes))
                connection.sendall(weights.data)


def receive(connection: socket.socket, size: int) -> bytes | None:
    """Exactly `size` bytes; None where the other end hung up before."""
    parts, left = [], size
    while left:
        part = connection.recv(min(left, 1 << 20))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _end_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock this thread would hold against the interpreter when it ends
        pass
    os._exit(0)


def main(path: str, workers: int, order: str, scale: float, dtype: str) -> None:
    server = ParameterServer(workers, order, scale, dtype)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(workers)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        print("ready", flush=True)
        threads = [threading.Thread(target=server.serve, args=(listening.accept()[0],)) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5])
