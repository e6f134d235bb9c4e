"""A run without values: the real trainer and the real system of every worker, on shapes alone.

Workers are threads of this process that take turns: one runs until it waits for another. Integers are real,
so that lists of rows, counts and draws are those of the run. Floating-point tensors are hollow: they have a
shape and a size, and no values (`harness.base.hollow`). What workers count, compute and wait for is recorded
as in any run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.base.hollow import Dry, Held, count_filled, rows_like
from harness.comm.comm import Comm
from harness.comm.recorder import Epoch, Recorder
from harness.comm.transport import ALONE
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.core.kernels.spmm import Kernel, Product
from harness.core.mixins import evaluation_weights
from harness.core.trainer import Trainer
from harness.data.partition.shard import Csr, ReplicaShard, Shard
from harness.model.plan.turns import DryTransport, Turns

AnyShard = Shard | ReplicaShard
Make = Callable[[Any, Comm, Kernel], Trainer]


class _Nothing:
    """A product that computes nothing: its output has the right shape already. Where the kernel stands for
    the compiled one, it counts the memory that the compiled product would take."""

    def __init__(self, kernel: Shapes, block: Csr):
        self.kernel, self.compiled = kernel, NumbaProduct(block)

    def apply(self, x: torch.Tensor, row: object, column: object, *others: object) -> None:
        if self.kernel.compiled and x.shape[1] and len(x):
            self.kernel.takes(*self.compiled.memory(x.shape[1], x.element_size(), column is None))


class Shapes(Kernel):
    """A kernel that computes nothing.

    held      counts the bytes of its blocks; a block that several products share counts once
    compiled  whether it stands for the compiled kernel, whose entries have values only where they are given;
              else for torch's, whose entries always have values
    """

    name = "shapes"

    def __init__(self, held: Held, compiled: bool):
        self.held, self.compiled, self.entry = held, compiled, 4 if compiled else 8
        self.packed = 0  # bytes of the buffer that products pack rows into, by turns
        # number of products by the address of a block's indices
        self.shared: dict[int, int] = defaultdict(int)

    def prepare(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        return self._product(block, values, block.indices.ctypes.data, block)

    def transposed(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        turned = Csr(np.broadcast_to(0, block.num_columns + 1), block.indices, block.num_rows)
        return self._product(block, values, -block.indices.ctypes.data, turned)

    def takes(self, packed: int, sums: int) -> None:
        """Count what a product takes: bytes that it packs rows in, which products share, and bytes of `sums`
        while it runs."""
        self.held.add(max(packed - self.packed, 0))
        self.packed = max(packed, self.packed)
        self.held.passing(sums)

    def _product(self, block: Csr, values: np.ndarray | None, address: int, turned: Csr) -> Product:
        made, own = _Nothing(self, turned), values is not None
        size = block.indptr.nbytes + block.num_entries * (max(self.entry, 8) if own else self.entry)
        if not self.shared[address]:
            self.held.add(size)
        self.shared[address] += 1
        weakref.finalize(made, self._gone, address, size)
        return made

    def _gone(self, address: int, size: int) -> None:
        self.shared[address] -= 1
        if not self.shared[address]:
            self.held.add(-size)


class DryRecorder(Recorder):
    """A recorder that drops metrics given as tensors, since these may be hollow."""

    def metric(self, name: str, value: float | torch.Tensor, layer: int = -1) -> None:
        if not isinstance(value, torch.Tensor):
            super().metric(name, value, layer)


@dataclass
class Ran:
    """What a dry run recorded.

    epochs   by worker, what was recorded in each epoch
    memory   by what it is for, [P]: the most bytes of each worker; "mapped" is memory of the host
    asked    whether values decided something, so that a run with the other answer gives other bytes
    """

    epochs: list[list[Epoch]]
    memory: dict[str, np.ndarray]
    asked: bool


def dry_run(
    shards: Sequence[AnyShard],
    make: Make,
    epochs: int,
    *,
    wire: str = "float32",
    place: str = "memory",
    scored: bool = True,
    most: bool = False,
    compiled: bool = True,
) -> Ran:
    """Train for `epochs` epochs on shapes.

    make     makes a worker's trainer of its shard, its `Comm` and a kernel
    place    "cuda"; "cpu"; or "memory" where workers on the CPU exchange through memory that they share
    scored   whether to evaluate after the first epoch too, and not after the last alone
    compiled whether the kernel on the CPU is the compiled one, or torch's
    most     the answer to every question that values decide (`harness.base.hollow.either`): no, or yes

    Raises `Unknown` where something depends on values in another way.
    """
    size, turns = len(shards), Turns(len(shards), place == "memory", place != "cuda")
    ran = Ran([[] for _ in shards], {}, False)
    lines = {name: np.zeros(size) for name in ("graph", "features", "kept", "step", "mapped")}

    def job(rank: int) -> None:
        shard, recorder, held = shards[rank], DryRecorder(), turns.held[rank]
        x: Any = shard.features
        if not isinstance(x, Csr):
            x = rows_like(x.shape[0], x.shape[1], count_filled(x))
        # The shard: its features become hollow rows, which know how many of their values are not 0; its other
        # arrays are counted as they are.
        graph = sum(
            each.nbytes
            for name, each in vars(shard).items()
            if isinstance(each, np.ndarray) and name != "features"
        )
        held.add(graph)
        with Dry(held, most) as mode, contextlib.ExitStack() as stack:
            held.add(x.nbytes)
            if not isinstance(x, Csr):
                held.made(x, 0)
            # The worker as in any run, but its transport takes turns and its kernel computes nothing.
            transport = DryTransport(rank, turns) if size > 1 else ALONE
            comm = Comm(rank, size, torch.device("cpu"), recorder, transport, wire)
            kernel = Shapes(held, compiled and place != "cuda")
            before = held.now
            trainer = make(dataclasses.replace(shard, features=x), comm, kernel)
            stack.callback(trainer.closing.close)
            # Training. What is held after the last step stays for the run ("kept"); the peak beyond it is
            # what a step or an evaluation takes ("step").
            for epoch in range(epochs):
                trainer.train_epoch(epoch)
                ran.epochs[rank].append(recorder.epoch)
                if epoch == epochs - 1:
                    lines["kept"][rank] = held.now - before
                if (scored and epoch == 0) or epoch == epochs - 1:
                    with recorder.clock("evaluate"), evaluation_weights(trainer.system, epoch):
                        trainer.evaluator.logits(trainer.model)
            comm.drain()
            ran.asked = ran.asked or mode.asked
        lines["graph"][rank], lines["features"][rank] = graph, x.nbytes
        lines["step"][rank] = held.peak - before - lines["kept"][rank]
        lines["mapped"][rank] = held.mapped

    turns.run([partial(job, rank) for rank in range(size)])
    ran.memory = lines
    return ran
