"""A representation store: workers push the rows of their own partition, and pull the rows of their halo,
without meeting.

    push(layer, rows, stamp)   put this worker's rows [n, F] into its slice of the layer, marked with a number
    pull(layer, wanted)        get the rows [m, F] of this worker's halo, in halo order, each owner's as it
                               pushed them under the stamp wanted[owner]

Both return at once, and run on a background thread; `wait()` gives the result, or raises what went wrong
there. Every partition has one writer, its owner. A slice keeps the last `slots` pushes, so that a worker
which is ahead does not overwrite what a slower one still reads. The bytes live where the backend puts them
(`harness.comm.backend`): in shared memory on one host, or in Redis.

Counted, by layer and purpose: `push`, the rows handed to the store, peer -1; `pull`, the rows taken from the
store, by the worker that owns them; `stamps`, 8 bytes per owner whose newest push is asked for, since the
stamp of that push comes along.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch

from harness.base.hollow import dry, hollow, mapped
from harness.comm.backend import EMPTY, Backend, Layout, check_address
from harness.comm.comm import Comm
from harness.comm.host import map_shared
from harness.comm.recorder import Route, Span
from harness.comm.service import STORE
from harness.data.partition.shard import Shard

Result = TypeVar("Result")
Pulled = tuple[torch.Tensor, list[int]]  # rows, and the stamps of each owner that has any of them

TORN_READS = 1000  # after so many reads that a writer has disturbed, something else must be wrong


@dataclass
class Operation(Generic[Result]):
    """A push or a pull that the background thread does; call `wait()` once, from the training thread."""

    comm: Comm
    name: str
    layer: int
    future: Future[Result]
    span: Span | None

    def wait(self) -> Result:
        id = self.span.id if self.span is not None else ""
        with self.comm.recorder.inside("wait", self.name, self.layer, id=id):
            return self.future.result()


class Store:
    """One worker's access to the store.

    address  "shared", or redis://[USER@]HOST:PORT[/DB] or unix:///SOCKET, without a password
    widths   {layer: F} of the layers that are stored
    slots    how many pushes a slice keeps

    Setting up is collective. Raises InputError where the address cannot serve these workers; operations raise
    ServiceLost where the store has gone away.
    """

    def __init__(self, address: str, comm: Comm, shard: Shard, widths: dict[int, int], slots: int = 2):
        check_address(address)
        self.comm, self.widths, self.slots = comm, widths, slots
        self.counts = shard.halo_counts.tolist()
        self.bounds = np.concatenate([[0], np.cumsum(self.counts)]).tolist()
        dtype = torch.get_default_dtype()
        self.host = {
            layer: torch.zeros(sum(self.counts), width, dtype=dtype, pin_memory=comm.device.type == "cuda")
            for layer, width in widths.items()
        }
        layout = Layout(
            comm.rank,
            shard.sizes.tolist(),
            np.split(shard.halo_rows, self.bounds[1:-1]),
            dict.fromkeys(widths, 0) if dry() else widths,
            slots,
            np.dtype(str(dtype).removeprefix("torch.")),
        )
        if address == "shared" or dry():
            self.backend: Backend = SharedMemory(layout, comm)
            self.backend.address = address
            if dry():
                mapped(self.slots * self.nbytes)
        else:
            # Its client is imported only where it is asked for.
            from harness.comm.redis_store import Redis

            self.backend = Redis(address, layout, comm)
        self.pushes = dict.fromkeys(widths, 0)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self.close = weakref.finalize(self, _close, self.thread, self.backend)

    @property
    def nbytes(self) -> int:
        """Bytes of all workers' representations, one slot per layer: (L - 1) dim |V| s  (DIGEST, eq. 7)."""
        layout = self.backend.layout
        size: int = sum(layout.sizes) * sum(self.widths.values()) * layout.dtype.itemsize
        return size

    def push(self, layer: int, rows: torch.Tensor, stamp: int) -> Operation[None]:
        """Start putting rows [n, F] under `stamp`. They must not be written before `wait()` has returned."""
        slot = self.pushes[layer] % self.slots
        self.pushes[layer] += 1
        size = rows.numel() * rows.element_size()
        self.comm.recorder.count(layer, "forward", "push", STORE, len(rows), size)
        return self._start(
            "push", layer, size, {}, lambda: self.backend.write(layer, slot, _values(rows), stamp)
        )

    def pull(self, layer: int, wanted: Sequence[int | None]) -> Operation[Pulled]:
        """Start fetching the halo's rows [m, F], each owner's as it pushed them under the stamp wanted[owner]
        (None: its newest push). Gives the rows, in host memory, and the stamps of each owner that has any of
        them, in rank order. The rows lie in a buffer that the layer's next pull writes again."""
        itemsize, width = self.host[layer].element_size(), self.widths[layer]
        taken = {}
        for owner, count in enumerate(self.counts):
            self.comm.recorder.count(layer, "forward", "pull", owner, count, count * width * itemsize)
            stamp_bytes = 8 if count and wanted[owner] is None else 0
            self.comm.recorder.count(layer, "forward", "stamps", owner, 0, stamp_bytes)
            if count:
                taken[owner] = count * width * itemsize + stamp_bytes
        return self._start("pull", layer, 0, taken, lambda: self._read(layer, wanted))

    def _read(self, layer: int, wanted: Sequence[int | None]) -> Pulled:
        out, stamps = _values(self.host[layer]), []
        for owner, count in enumerate(self.counts):
            if count:
                part = out[self.bounds[owner] : self.bounds[owner + 1]]
                stamps.append(self.backend.read(layer, owner, wanted[owner], part))
        return self.host[layer], stamps

    def _start(
        self, name: str, layer: int, there: int, taken: dict[int, int], work: Callable[[], Result]
    ) -> Operation[Result]:
        """Have the background thread do `work`, and begin its span. there: bytes that go to the store; taken:
        bytes that come, by owner."""
        back = sum(taken.values())
        route: Route = "server" if self.backend.address != "shared" else "take" if taken else "own"
        span = self.comm.recorder.posted(name, layer, there + back, taken, self.comm.next_id(), False, route)
        if span is not None and route == "server":
            span.peer_bytes = there, back

        def timed() -> Result:
            try:
                return work()
            finally:
                if span is not None:
                    span.end = time.monotonic()

        return Operation(self.comm, name, layer, self.thread.submit(timed), span)

    def contents(self) -> dict[int, dict[int, torch.Tensor]]:
        """What this worker's slices hold: {layer: {stamp: rows [n, F]}}, oldest push first. No operation may
        be under way.
        """
        held = {}
        for layer in self.widths:
            stamps = self.backend.stamps(layer)
            order = [(self.pushes[layer] + k) % self.slots for k in range(self.slots)]
            held[layer] = {
                stamps[slot]: torch.from_numpy(self.backend.slice(layer, slot).copy())
                for slot in order
                if stamps[slot] != EMPTY
            }
        return held

    def restore(self, contents: dict[int, dict[int, torch.Tensor]]) -> None:
        """Push again what `contents` gave. Collective, outside the train clock; returns when all workers have
        done so."""
        for layer, held in contents.items():
            for stamp, rows in held.items():
                self.push(layer, rows, stamp).wait()
        self.comm.barrier()


def _values(rows: torch.Tensor) -> np.ndarray:
    """Rows as a numpy array [n, F]; a dry run's, which have no values, as [n, 0]."""
    return np.empty((len(rows), 0), np.float32) if hollow(rows) else rows.cpu().numpy()


def _close(thread: ThreadPoolExecutor, backend: Backend) -> None:
    thread.shutdown()
    backend.close()


class SharedMemory:
    """One piece of memory per worker, which its owner writes and all others map.

    A piece begins with one stamp per layer and slot; the rows follow. A writer sets the stamp to EMPTY,
    writes the rows, then sets the new stamp. A reader looks at the stamp before and after it copies the rows,
    and begins again where the two differ.
    """

    address = "shared"

    def __init__(self, layout: Layout, comm: Comm):
        self.layout = layout
        stamps = 8 * layout.slots * len(layout.widths)
        row = layout.slots * sum(layout.widths.values()) * layout.dtype.itemsize
        maps = map_shared(comm, [stamps + size * row for size in layout.sizes], "store=redis://HOST:PORT")
        self.slices = [self._slices(memory, size) for memory, size in zip(maps, layout.sizes)]
        self.own = self.slices[comm.rank]
        for marks, _ in self.own.values():
            marks[:] = EMPTY

    def _slices(self, memory: memoryview, size: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """{layer: (stamps [slots], rows [slots, size, F])} of one worker."""
        widths, slots = self.layout.widths, self.layout.slots
        stamps = np.frombuffer(memory, np.int64, len(widths) * slots).reshape(-1, slots)
        rows = np.frombuffer(memory, self.layout.dtype, offset=stamps.nbytes)
        parts = np.split(rows, np.cumsum([slots * size * width for width in widths.values()])[:-1])
        return {
            layer: (marks, part.reshape(slots, size, width))
            for (layer, width), marks, part in zip(widths.items(), stamps, parts)
        }

    def write(self, layer: int, slot: int, rows: np.ndarray, stamp: int) -> None:
        marks, held = self.own[layer]
        marks[slot] = EMPTY
        np.copyto(held[slot], rows)
        marks[slot] = stamp

    def read(self, layer: int, owner: int, stamp: int | None, out: np.ndarray) -> int:
        marks, parts = self.slices[owner][layer]
        for _ in range(TORN_READS):
            before = marks.copy()
            slot = int(before.argmax() if stamp is None else (before == stamp).argmax())
            assert stamp is None or before[slot] == stamp, (
                f"worker {owner} holds pushes {before} of layer {layer}, not {stamp}"
            )
            # mode="clip" reads straight into `out`; the index is in range by construction.
            np.take(parts[slot], self.layout.rows[owner], axis=0, out=out, mode="clip")
            if before[slot] != EMPTY and marks[slot] == before[slot]:
                return int(before[slot])
        raise RuntimeError(
            f"worker {owner} overwrote layer {layer} of the store {TORN_READS} times while it was read"
        )

    def stamps(self, layer: int) -> list[int]:
        stamps: list[int] = self.own[layer][0].tolist()
        return stamps

    def slice(self, layer: int, slot: int) -> np.ndarray:
        rows: np.ndarray = self.own[layer][1][slot]
        return rows

    def close(self) -> None:
        self.slices, self.own = [], {}  # the maps go with the last array over them
