"""Rows in host memory that all workers of a host share: the worker that has a row puts it there, and every
worker that needs it gets it.

The workers that share rows map one piece of memory, made by the first of them: an array [capacity, F] per
layer, whose rows are slots. A put copies rows into slots, a get copies rows out of slots. Neither sends a
message or wakes anybody. So the workers must meet (in a barrier or a sum) between a put and the gets that
follow it; if they do, a get never reads a row that is half written.

A row is counted once per worker that receives it, as in an exchange: under `<purpose>_get`, by the worker
that gets it, with the worker that put it as peer. The put is not counted. Both `<purpose>_put` and
`<purpose>_get` are spans with the bytes that they copy, and exposed: the training thread makes the copies.
"""

from collections.abc import Sequence

import torch

from harness.base.hollow import dry, mapped, rows_like
from harness.comm.comm import Comm
from harness.comm.host import map_shared


class SharedRows:
    """`capacity` rows per layer in one piece of memory. Nothing orders the accesses: callers agree on who
    puts a slot when, and meet between a put and the gets that follow it.

    widths    {layer: F}
    purpose   the first part of the names under which rows are counted
    among     the workers that share it, consecutive ones; None: all. All groups of workers must have the same
              size; each has a piece of memory of its own

    Setting up is collective and outside the train clock. Raises InputError where there are rows and the
    workers that share them are not on one host.
    """

    def __init__(
        self,
        comm: Comm,
        capacity: int,
        widths: dict[int, int],
        purpose: str = "global",
        among: range | None = None,
    ):
        self.comm, self.capacity, self.purpose = comm, capacity, purpose
        dtype = torch.get_default_dtype()
        row = dtype.itemsize * sum(widths.values())
        group = range(comm.size) if among is None else among
        # The first worker of each group makes its memory.
        lengths = [0 if rank % len(group) else capacity * row for rank in range(comm.size)]
        memory: memoryview | bytearray = bytearray(0 if dry() else capacity * row)
        if comm.size > 1 and not dry():
            memory = map_shared(comm, lengths, "global_capacity=0", group)[group.start]
        # The layers' arrays lie one behind the other, at the same places on every worker.
        self.rows: dict[int, torch.Tensor] = {}
        at = 0
        for layer, width in widths.items():
            count = capacity * width
            if dry():  # in no memory
                self.rows[layer] = rows_like(capacity, width)
                mapped(count * dtype.itemsize, self.rows[layer])
                continue
            flat = (
                torch.frombuffer(memory, dtype=dtype, count=count, offset=at)
                if count
                else torch.empty(0, dtype=dtype)
            )
            self.rows[layer] = flat.view(capacity, width)
            at += count * dtype.itemsize

    def put(self, layer: int, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Copy rows [k, F], on any device, into slots [k] int64, on the CPU."""
        name, size = f"{self.purpose}_put", rows.numel() * rows.element_size()
        with self.comm.waiting(name, layer, size, {}, "own"):
            self.rows[layer].index_copy_(0, slots, rows.cpu())

    def get(self, layer: int, slots: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows [k, F] in slots [k], copied to this worker's device; counts: how many each worker put."""
        # Counted from the side that receives: the worker that put a row does not know who gets it.
        name, row = f"{self.purpose}_get", self.rows[layer].shape[1] * self.rows[layer].element_size()
        for owner, count in enumerate(counts):
            self.comm.recorder.count(layer, "forward", name, owner, count, count * row)
        taken = {p: count * row for p, count in enumerate(counts) if count}
        with self.comm.waiting(name, layer, len(slots) * row, taken, "take"):
            return self.rows[layer].index_select(0, slots).to(self.comm.device, non_blocking=True)
