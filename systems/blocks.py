"""The block view of a partition that CAGNET and SANCUS share: whole blocks travel, the rows in use are picked from them.

A worker sees the graph as P blocks of rows. `Blocks` holds, for one width, every remote block as last received (the
cache), and the index of the rows that this worker's edges touch.
"""

from __future__ import annotations

import torch

from harness.comm.comm import Comm, InFlight
from harness.partition.shard import Shard


class BlockRows:
    """Which rows of the other workers' blocks this worker uses: its halo, or the halo of its out-edges."""

    def __init__(self, counts, rows, device: torch.device):
        self.groups = [group.long().to(device) for group in torch.as_tensor(rows).split(list(map(int, counts)))]

    def pick(self, blocks: list[torch.Tensor], width: int) -> torch.Tensor:
        """The rows in use [m, F], grouped by owner."""
        parts = [block.index_select(0, rows) for block, rows in zip(blocks, self.groups) if len(rows)]
        return torch.cat(parts) if parts else blocks[0].new_empty(0, width)

    @staticmethod
    def of_halo(shard: Shard, device: torch.device) -> BlockRows:
        return BlockRows(shard.halo_counts, shard.halo_rows, device)

    @staticmethod
    def of_out_halo(shard: Shard, device: torch.device) -> BlockRows:
        """On a symmetric graph the out-edges lead where the in-edges come from."""
        if shard.symmetric:
            return BlockRows.of_halo(shard, device)
        return BlockRows(shard.out_halo_counts, shard.out_halo_rows, device)


def empty_blocks(shard: Shard, width: int, device: torch.device) -> list[torch.Tensor]:
    """One uninitialised block [n_j, width] a worker; (P-1)/P N F floats of cache, and an empty one for the worker itself."""
    return [torch.empty(0 if j == shard.rank else int(size), width, device=device) for j, size in enumerate(shard.sizes)]


class PendingBlocks:
    """Broadcasts under way; `wait()` picks the rows in use [m, F] from what every block now holds."""

    def __init__(self, flight: InFlight, blocks: list[torch.Tensor], rows: BlockRows, width: int):
        self.flight, self.blocks, self.rows, self.width = flight, blocks, rows, width

    def wait(self) -> torch.Tensor:
        self.flight.wait()
        return self.rows.pick(self.blocks, self.width)


def broadcast(comm: Comm, cache: list[torch.Tensor], own: torch.Tensor, active, rows: BlockRows, layer: int,
              direction: str, purpose: str) -> PendingBlocks:
    """BROADCAST and CACHE the blocks of the `active` workers, one root after the other; the others' stay as cached.

    own [n, F] is this worker's block, always fresh; cache holds the remote ones and is written in place.
    """
    blocks = list(cache)
    blocks[comm.rank] = own.detach().contiguous()
    flight = comm.broadcast_blocks(blocks, active, layer, direction, purpose)
    return PendingBlocks(flight, blocks, rows, own.shape[1])
