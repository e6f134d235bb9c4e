"""A worker's connection to the parameter server: updates sent, weights received, all of it counted.

Worker 0 starts the server as a separate process (`harness.comm.server`), which ends when worker 0 does.
Counted, with peer -1, are the purposes

    gradient, delta   the update: a gradient where the server has an optimiser, else a change of the weights
    weights           the weights that come back
    stamps            the version of the weights, 8 bytes each way
"""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import weakref
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import torch

from harness.base.errors import InputError
from harness.base.places import ROOT
from harness.base.scratch import place, scratch
from harness.comm import server
from harness.comm.comm import Comm
from harness.comm.host import draw_token
from harness.comm.names import IN_TURN, UPDATE
from harness.comm.service import STORE, ServiceLost

SOCKET = "socket"  # the name of the server's, in a folder of its own


class Parameters:
    """One worker's connection. Setting up is collective; all workers must be on one host.

    weights   [w] the weights that the server begins with; those of worker 0 count
    order, scale, adam, updates   see `harness.comm.server.Settings`

    Raises InputError where this worker is on another host than worker 0; every operation raises ServiceLost
    where the server has gone away.
    """

    def __init__(
        self,
        comm: Comm,
        weights: torch.Tensor,
        order: str,
        scale: float,
        adam: dict[str, float] | None,
        updates: int,
    ):
        self.comm, dtype = comm, str(weights.dtype).removeprefix("torch.")
        self.settings = server.Settings(comm.size, order, scale, dtype, adam, updates)
        name = draw_token(comm)
        # The socket's folder is there until all workers are connected, or setting up has failed.
        with scratch(name) if comm.rank == 0 else contextlib.nullcontext():
            folder = place(name)
            self.process = self._start(str(folder / SOCKET)) if comm.rank == 0 else None
            self.pid = int(comm.total([self.process.pid if self.process is not None else 0])[0])
            try:
                self.connection = _connected(folder)
            except FileNotFoundError:
                raise InputError(
                    "the parameter server reaches the workers of one host only; start all workers on one host"
                ) from None
            self.close = weakref.finalize(self, _close, self.connection, self.process)
            comm.barrier()
        if comm.rank == 0:
            state = torch.zeros(self.settings.rows, len(weights), dtype=weights.dtype)
            state[0] = weights
            self.load(state, 0)
        comm.barrier()

    def _start(self, address: str) -> subprocess.Popen[bytes]:
        root = str(ROOT)
        settings = json.dumps(dataclasses.asdict(self.settings))
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.comm.server", address, settings],
            cwd=root,  # where -m looks first
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"})  # fmt: skip
        assert process.stdout is not None
        if (said := process.stdout.readline().decode().strip()) != "ready":
            why = said or f"exit code {process.wait()}"
            raise ServiceLost(f"the parameter server could not be started: {why}")
        return process

    def update(self, update: torch.Tensor, epoch: int, base: int) -> tuple[torch.Tensor, int, int | None]:
        """Send an update [w] that was computed from version `base` of the weights.

        Returns (the weights [w] after this update, their version, the delay). The delay is the number of
        updates that the server had applied since `base`; None where the run had had its last update before,
        so that this one was not applied.
        """
        recorder, size = self.comm.recorder, update.numel() * update.element_size()
        purpose = "delta" if self.settings.adam is None else "gradient"
        for direction, what in (("backward", purpose), ("forward", "weights")):
            recorder.count(-1, direction, what, STORE, 0, size)
            recorder.count(-1, direction, "stamps", STORE, 0, 8)
        there_and_back = (size + 8, size + 8)
        # A replay must know whether the server makes workers wait for one another.
        name = UPDATE if self.settings.order == "arrival" else IN_TURN
        with self.comm.waiting(name, -1, sum(there_and_back), {}, "server") as span:
            if span is not None:
                span.peer_bytes = there_and_back
            version, delay, weights = self._ask("update", self.comm.rank, epoch, base, update)
        return weights, version, delay

    def snapshot(self, epoch: int) -> tuple[torch.Tensor, float]:
        """Wait for (epoch + 1) P updates; returns the weights [w] after them, and when that was, in seconds
        of the server's clock. Every worker asks for the same epochs, once each, in ascending order; epochs
        may be left out."""
        _, when, weights = self._ask("snapshot", epoch)
        return weights, when

    def load(self, state: torch.Tensor, version: int, elapsed: float = 0.0) -> None:
        """Have the server go on from a state that `read` gave."""
        self._ask("load", version, elapsed, state)

    def read(self) -> tuple[torch.Tensor, int, float]:
        """The server's present state ([1, w] the weights, or [3, w] weights and both moments), how many
        updates have been applied to it, and the seconds that the server's clock has run."""
        version, elapsed, state = self._ask("read")
        return state.view(self.settings.rows, -1), version, elapsed

    def _ask(self, method: str, *arguments: int | float | torch.Tensor) -> tuple[int, Any, torch.Tensor]:
        """What a method of the server returns, the body on this worker's device."""
        told = [each.detach().cpu().numpy() if isinstance(each, torch.Tensor) else each for each in arguments]
        try:
            self.connection.send((method, told))
            version, number, body = self.connection.recv()
        except (OSError, EOFError) as error:
            epoch = self.comm.recorder.epoch.epoch
            when = f" in epoch {epoch + 1}" if epoch >= 0 else ""
            why = str(error) or "it hung up"
            raise ServiceLost(
                f"the parameter server (process {self.pid}) went away{when} ({why}); the same command goes on"
                " from the last checkpoint"
            ) from error
        return version, number, torch.from_numpy(body).to(self.comm.device)


def _connected(folder: Path) -> Connection:
    """A connection to the server's socket in `folder`, by the folder's descriptor: an address of a socket has
    107 bytes at most, and a path may be longer."""
    descriptor = os.open(folder, os.O_PATH)
    try:
        return Client(f"/proc/self/fd/{descriptor}/{SOCKET}", "AF_UNIX")
    finally:
        os.close(descriptor)


def _close(connection: Connection, process: subprocess.Popen[bytes] | None) -> None:
    connection.close()
    if process is not None:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        process.wait()
