"""What a worker of PSC-GCN needs of other workers: the boundary rows of the graphs that it draws (`Drawn`),
and a cache of boundary vertices' features (`FeatureCache`).

Both know the system they belong to (`systems.pscgcn`): its shard, halo plan, sampled edges and knobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.comm.flight import HaloPlan, InFlight
from harness.core.features import SparseRows, compact, interleaved
from systems.parts.sampling import SampledAdjacency


@dataclass
class Request:
    """Which rows are to be sent, as asked for, and how many will come.

    rows     [q] own rows that peers asked for, by peer; send, receive: counts to and from each worker
    """

    rows: torch.Tensor
    send: list[int]
    receive: list[int]

    @staticmethod
    def of(plan: HaloPlan, asked: torch.Tensor, owner: torch.Tensor) -> Request:
        """asked [s] bool: which of the plan's rows peers ask for; owner [q], ascending: the workers that own
        the rows that this worker asks for.
        """
        # All counts are read together: a device would wait for each read.
        sent = [part.sum() for part in asked.split(plan.send_counts)]
        ends = torch.searchsorted(owner, torch.arange(len(sent), device=owner.device), right=True)
        counts = torch.cat([torch.stack(sent), ends]).tolist()
        send, last = counts[: len(sent)], counts[len(sent) :]
        return Request(plan.send_rows[asked], send, [b - a for a, b in zip([0, *last], last)])


class Drawn:
    """A sampled graph: its operators, its boundary vertices (halo places, ascending) and who was asked for
    them."""

    request: Request  # there once it has been settled

    def __init__(self, system: Any, mask: np.ndarray, factor: np.ndarray):
        self.mask, self.factor = mask, factor
        self.adjacency = SampledAdjacency(system.full, system.edges, mask, factor)
        self.boundary = self.adjacency.drawn
        cache = system.features_cache
        self.hit = cache.kept[self.boundary]  # [k] bool, whose features are in the cache
        self.slots = cache.place[self.boundary[self.hit]].long()
        self.rows, self.sparse = cache.rows, cache.sparse
        self.missing: Request | None = None  # what the cache lacks, under `refetch`
        self.asking: tuple[InFlight, torch.Tensor, torch.Tensor] | None = None

    def ask(self, system: Any) -> None:
        """Tell every owner which of the rows it could send are wanted: a bit for each."""
        plan = system.plan
        wanted = torch.zeros(system.shard.num_halo, dtype=torch.bool, device=system.device)
        wanted[self.boundary] = True
        bits = _pack_bits(wanted, plan.receive_counts)
        into, out = (list(map(_bytes_of, counts)) for counts in (plan.send_counts, plan.receive_counts))
        self.asking = (*system.comm.start_exchange(bits, out, into, -1, "forward", "wanted"), bits)

    def settle(self, system: Any) -> Drawn:
        """Wait until everybody knows what it will send."""
        if self.asking is not None:
            flight, asked, _ = self.asking
            flight.wait()
            self.asking, plan = None, system.plan
            send = _unpack_bits(asked, plan.send_counts)
            owner = system.owner[self.boundary]
            self.request = Request.of(plan, send, owner)
            if system.features == "refetch":
                self.missing = Request.of(plan, send & ~system.features_cache.told, owner[~self.hit])
        return self

    def state_dict(self):
        requests = [None if r is None else [r.rows, r.send, r.receive] for r in (self.request, self.missing)]
        return {
            "mask": torch.from_numpy(self.mask),
            "factor": torch.from_numpy(self.factor),
            "hit": self.hit,
            "slots": self.slots,
            "cached": self.rows,
            "requests": requests,
        }

    @staticmethod
    def restore(system: Any, state) -> Drawn:
        """A settled graph from its state."""
        drawn = Drawn(system, state["mask"].cpu().numpy(), state["factor"].cpu().numpy())
        request, missing = state["requests"]
        drawn.request, drawn.missing = Request(*request), None if missing is None else Request(*missing)
        drawn.hit, drawn.slots, drawn.rows = state["hit"], state["slots"], state["cached"]
        drawn.sparse = system.features_cache.without_zeros(drawn.rows)
        return drawn


def _bytes_of(bits: int) -> int:
    return -(-bits // 8)


def _pack_bits(mask: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Bytes [sum of ceil(count / 8), 1] of mask [sum of counts], each part begun on a byte."""
    parts = [np.packbits(part) for part in np.split(mask.cpu().numpy(), np.cumsum(counts)[:-1])]
    return torch.from_numpy(np.concatenate(parts)).to(mask.device, non_blocking=True)[:, None]


def _unpack_bits(packed: torch.Tensor, counts: list[int]) -> torch.Tensor:
    sizes = list(map(_bytes_of, counts))
    parts = np.split(packed[:, 0].cpu().numpy(), np.cumsum(sizes)[:-1])
    bits = np.concatenate([np.unpackbits(part, count=count) for part, count in zip(parts, counts)])
    return torch.from_numpy(bits).bool().to(packed.device, non_blocking=True)


class FeatureCache:
    """Features of the boundary vertices most worth keeping (section V); the owners know which, so a hit costs
    nothing.

    kept   [m] bool; place [m] int32, the row of `rows` where kept: the map of section V-A, 5 bytes per vertex
    told   [s] bool, by row of the plan: whether the peer that it would be sent to has it in its cache
    """

    def __init__(self, system: Any):
        self.system, shard, device = system, system.shard, system.device
        self.size = round(system.cache * shard.num_halo) if system.features == "refetch" else 0
        self.kept = torch.zeros(shard.num_halo, dtype=torch.bool, device=device)
        self.place = torch.zeros(shard.num_halo, dtype=torch.int32, device=device)
        self.told = torch.zeros(len(system.plan.send_rows), dtype=torch.bool, device=device)
        self.rows = torch.zeros(0, shard.features.shape[1], dtype=system.dtype, device=device)
        self.sparse = self.without_zeros(self.rows)

    def without_zeros(self, rows: torch.Tensor) -> SparseRows | None:
        """Kept rows as an operator; None where that does not save, or nothing is kept."""
        features = self.system.full.features
        if self.system.features != "refetch" or features is None or not features.sparse:
            return None
        found = compact(rows, self.system.full.kernel, rows.numel() // 2)
        return found if isinstance(found, SparseRows) else None

    def priority(self, epoch: int) -> np.ndarray:
        """How much each halo vertex is worth keeping [m], the larger the more: under `policy=inclusion` how
        likely it is drawn, but its degree in epoch 0, when no p has been renewed."""
        shard, system = self.system.shard, self.system
        if system.policy == "random":
            order = np.random.default_rng((system.seed, 0)).permutation(shard.num_vertices)
            return order[shard.halo].astype(np.float64)
        if system.policy == "degree" or epoch == 0:
            return shard.halo_degrees.astype(np.float64)
        return system.edges.inclusion(system.p)

    def renew(self, epoch: int) -> None:
        """Choose again what is kept, tell the owners, and fetch the rows that are new."""
        system, device = self.system, self.system.device
        best = np.lexsort((system.shard.halo, -self.priority(epoch)))[: self.size]  # ties to the lowest id
        kept = torch.zeros_like(self.kept)
        kept[torch.from_numpy(best).to(device)] = True
        fresh = kept & ~self.kept
        # One byte per boundary vertex: 1 where it is kept from now on, 2 where its row is wanted too.
        states = kept.to(torch.uint8) + fresh.to(torch.uint8)
        plan, comm = system.plan, system.comm
        told = comm.exchange_now(states[:, None], *plan.counts("backward"), 0, "backward", "cache")[:, 0]
        self.told = told > 0
        wanted = told == 2
        assert system.full.features is not None
        x = system.full.features.x
        send = [int(part.sum()) for part in wanted.split(plan.send_counts)]
        receive = [int(part.sum()) for part in fresh.split(plan.receive_counts)]
        rows = comm.exchange_now(x[plan.send_rows[wanted]], send, receive, 0, "forward", "cache")
        self.replace(kept, fresh, rows)
        comm.recorder.metric("map_bytes", self.kept.nbytes + self.place.nbytes, 0)

    def replace(self, kept: torch.Tensor, fresh: torch.Tensor, arrived: torch.Tensor) -> None:
        """Keep the halo rows `kept` [m] from now on: those that stay, in their order, then the fresh ones,
        whose features have arrived. Graphs that have been drawn keep the rows of before."""
        stays = kept & ~fresh
        slots = self.place[stays].long()
        rows = self.rows.new_empty(len(slots) + len(arrived), self.rows.shape[1])
        torch.index_select(self.rows, 0, slots, out=rows[: len(slots)])
        rows[len(slots) :] = arrived
        if self.sparse is None:
            self.sparse = self.without_zeros(rows)
        else:
            # The same as `without_zeros` of all rows, which is what a run resumed from here makes.
            there = np.arange(len(rows)) < len(slots)
            self.sparse = interleaved(self.sparse, slots.numpy(), there, arrived, rows.numel() // 2)
        self.kept, self.rows, self.place = kept, rows, torch.zeros_like(self.place)
        order = torch.cat([stays.nonzero(), fresh.nonzero()]).squeeze(1)
        self.place[order] = torch.arange(len(order), dtype=torch.int32, device=order.device)

    def complete(self, drawn: Drawn, arrived: torch.Tensor) -> torch.Tensor:
        """Layer 0's boundary rows [k, f0]: those kept when the graph was drawn, and those that arrived."""
        rows = arrived.new_empty(len(drawn.boundary), arrived.shape[1])
        rows.index_copy_(0, drawn.hit.nonzero().squeeze(1), drawn.rows.index_select(0, drawn.slots))
        return rows.index_copy_(0, (~drawn.hit).nonzero().squeeze(1), arrived)

    def complete_sparse(self, drawn: Drawn, arrived: torch.Tensor) -> SparseRows | None:
        """The same rows without their zeros; None where that does not save."""
        if drawn.sparse is None:
            return None
        return interleaved(drawn.sparse, drawn.slots.numpy(), drawn.hit.numpy(), arrived)

    def state_dict(self):
        return {"kept": self.kept, "place": self.place, "told": self.told, "rows": self.rows}

    def load_state_dict(self, state):
        self.kept, self.place = state["kept"], state["place"].to(torch.int32)
        self.told, self.rows = state["told"], state["rows"]
        self.sparse = self.without_zeros(self.rows)
