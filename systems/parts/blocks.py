"""The block view of a partition that CAGNET, SANCUS and SkipG share: whole blocks travel, the rows in use are
picked from them.
"""

from typing import ClassVar

import torch

from harness.comm.comm import Comm
from harness.comm.flight import InFlight
from harness.comm.sparse import fetch_rows
from harness.comm.work import copied
from harness.core.adjacency import Adjacency
from harness.core.context import A
from harness.core.order import GATHERED
from harness.core.propagate import Pending, propagate_gathered
from harness.core.system import Refuses, System
from harness.data.partition.shard import Shard

BlockRows = list[torch.Tensor]  # by owner: the rows of its block that this worker uses


def picked(blocks: list[torch.Tensor], rows: BlockRows) -> torch.Tensor:
    """The rows in use [m, F] of blocks [n_j, F], grouped by owner."""
    counts = list(map(len, rows))
    found = blocks[0].new_empty(sum(counts), blocks[0].shape[1])
    for block, used, place in zip(blocks, rows, found.split(counts)):
        torch.index_select(block, 0, used, out=place)
    return found


class PendingBlocks:
    """Broadcasts under way; `wait()` picks the rows in use [m, F] from what every block now holds."""

    def __init__(self, comm: Comm, flight: InFlight, blocks: list[torch.Tensor], rows: BlockRows, layer: int):
        self.comm, self.flight, self.blocks, self.rows, self.layer = comm, flight, blocks, rows, layer

    def wait(self) -> torch.Tensor:
        self.flight.wait()
        return self.picked()

    def picked(self) -> torch.Tensor:
        """The rows in use [m, F], once all blocks are here."""
        with self.comm.recorder.inside("rest", "unpack", self.layer):
            found = picked(self.blocks, self.rows)
            self.comm.recorder.work(copied(found))
            return found


class BlockSystem(System[Shard, A]):
    """A system that sees the graph as P blocks of rows, its own always fresh, the others as last received.
    Whole blocks travel: those of H in the forward pass, of delta in the backward pass.

    everyone   the ACTIVE workers where nothing is skipped
    """

    passes: ClassVar = (GATHERED, GATHERED)
    refuses: ClassVar = Refuses(needed_rows="broadcasts whole blocks")

    def setup(self, context):
        super().setup(context)
        self.everyone = list(range(self.comm.size))
        # The rows in use: of H those of the halo, of delta those that this worker's out-edges lead to. On a
        # symmetric graph the out-edges lead where the in-edges come from.
        self.used: dict[str, BlockRows] = {
            direction: list(
                torch.as_tensor(edges.halo_rows).long().to(self.device).split(edges.halo_counts.tolist())
            )
            for direction, edges in (("forward", self.shard), ("backward", self.shard.outward))
        }
        # By width: blocks that layers use in turn where nothing is cached; each overwrites them before it
        # reads them.
        self.scratch: dict[int, list[torch.Tensor]] = {}

    def empty_blocks(self, width: int) -> list[torch.Tensor]:
        """A cache: one uninitialised block [n_j, width] per worker, (P-1)/P N F floats; an empty one for the
        worker itself."""
        rows = [0 if j == self.comm.rank else int(size) for j, size in enumerate(self.shard.sizes)]
        return [torch.empty(count, width, device=self.device) for count in rows]

    def broadcast(
        self, layer: int, direction: str, own: torch.Tensor, cache=None, active=None, purpose: str = ""
    ) -> PendingBlocks:
        """BROADCAST and CACHE the blocks of the `active` workers (None: everyone), all posted together; the
        blocks of others stay as cached. own [n, F]: this worker's. `cache` (None: nothing is kept) is written
        in place. What is returned waits for the rows in use."""
        if cache is None:
            width = own.shape[1]
            if width not in self.scratch:
                self.scratch[width] = self.empty_blocks(width)
            cache = self.scratch[width]
        blocks = list(cache)
        blocks[self.comm.rank] = own.detach().contiguous()
        purpose = purpose or {"forward": "blocks", "backward": "deltas"}[direction]
        return self.start(blocks, self.everyone if active is None else active, layer, direction, purpose)

    def start(
        self, blocks: list[torch.Tensor], roots: list[int], layer: int, direction: str, purpose: str
    ) -> PendingBlocks:
        """Start a broadcast of blocks[j] from each worker j in `roots`."""
        flight = self.comm.broadcast_blocks(blocks, roots, layer, direction, purpose)
        return PendingBlocks(self.comm, flight, blocks, self.used[direction], layer)

    def halo(self, layer, h):
        return self.broadcast(layer, "forward", h)

    def input_halo(self, x):
        if self.features_wire == "dense":
            return self.broadcast(0, "forward", x, self.empty_blocks(x.shape[1]), purpose="features").wait()
        sizes = [int(size) if j != self.comm.rank else 0 for j, size in enumerate(self.shard.sizes)]
        found = fetch_rows(self.comm, [x] * self.comm.size, sizes, 0, "features", self.features_wire)
        return picked(list(found.split(sizes)), self.used["forward"])

    def gathered(self, layer: int, delta: torch.Tensor) -> Pending:
        """The rows of delta [n, F] that this worker's out-edges lead to."""
        return self.broadcast(layer, "backward", delta)

    def propagate(self, layer, h, weight, dropout):
        assert isinstance(self.adjacency, Adjacency)
        pending = self.halo(layer, h)
        return propagate_gathered(
            self.adjacency, h, pending, weight, dropout, lambda delta: self.gathered(layer, delta)
        )
