"""Rows in host memory that all workers of a host share: the worker that has a row puts it there, and every
worker that needs it gets it.

The workers that share rows map one piece of memory, made by the first of them: an array [capacity, F] per
layer, whose rows are slots. A put copies rows into slots, a get copies rows out of slots. Neither sends a
message or wakes anybody. So the workers must meet (in a barrier or a sum) between a put and the gets that
follow it; if they do, a get never reads a row that is half written.

A row is counted once per worker that receives it, as in an exchange: under `global_get`, by the worker that
gets it, with the worker that put it as peer. The put is not counted. Both `global_put` and `global_get` are
spans with the bytes that they copy, and exposed: the training thread makes the copies.
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
    among     the workers that share it, consecutive ones. All groups of workers must have the same size; each
              has a piece of memory of its own

    Setting up is collective and outside the train clock. Raises InputError where there are rows and the
    workers that share them are not on one host.
    """

    def __init__(self, comm: Comm, capacity: int, widths: dict[int, int], among: range):
        self.comm, self.capacity = comm, capacity
        dtype = torch.get_default_dtype()
        self.rows: dict[int, torch.Tensor]
        if dry():  # in no memory
            self.rows = {layer: rows_like(capacity, width) for layer, width in widths.items()}
            for rows in self.rows.values():
                mapped(rows.numel() * dtype.itemsize, rows)
            return
        # The first worker of each group makes its memory. The layers' arrays lie in it one behind the other.
        size = capacity * sum(widths.values())
        lengths = [0 if rank % len(among) else size * dtype.itemsize for rank in range(comm.size)]
        memory = map_shared(comm, lengths, "global_capacity=0", among)[among.start]
        flat = torch.frombuffer(memory, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        parts = flat.split([capacity * width for width in widths.values()])
        self.rows = {layer: part.view(capacity, width) for (layer, width), part in zip(widths.items(), parts)}

    def put(self, layer: int, slots: torch.Tensor, rows: torch.Tensor) -> None:
        """Copy rows [k, F], on any device, into slots [k] int64, on the CPU."""
        with self.comm.waiting("global_put", layer, rows.numel() * rows.element_size(), {}, "own"):
            self.rows[layer].index_copy_(0, slots, rows.cpu())

    def get(self, layer: int, slots: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """The rows [k, F] in slots [k], copied to this worker's device; counts: how many each worker put."""
        # Counted from the side that receives: the worker that put a row does not know who gets it.
        row = self.rows[layer].shape[1] * self.rows[layer].element_size()
        for owner, count in enumerate(counts):
            self.comm.recorder.count(layer, "forward", "global_get", owner, count, count * row)
        taken = {p: count * row for p, count in enumerate(counts) if count}
        with self.comm.waiting("global_get", layer, len(slots) * row, taken, "take"):
            return self.rows[layer].index_select(0, slots).to(self.comm.device, non_blocking=True)
