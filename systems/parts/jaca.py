"""Who holds which halo row: the two tiers of CaPGNN's joint cache (section 4.2), and what each worker must
therefore fetch.

A lookup goes to the worker's own tier, then to the global tier in host memory, then to the row's owner. All
workers know all halo sets, so that each knows what every other one asks it for: under `jaca` no vertex id
travels after the start.

Notation: m halo vertices of a worker; a *place* is a position in its halo; a *key* a position in the union of
all halos; R(v) the overlap ratio (eq. 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.core.cluster import Cluster
from harness.data.partition.shard import Shard
from systems.parts.rowcache import NONE, Queue, Selection, Tier

POLICIES = ("jaca", "low_overlap", "fifo", "lru")
FIXED = POLICIES[:2]  # vertices ranked once, for the whole run
TIERS = ("inclusive", "exclusive")
MIB = 1024**2


class Halos:
    """Every worker's halo set, which all workers tell each other once.

    hosts    hosts that the workers are spread over, each with a global tier of its own
    ids      by worker: [m_p] global ids in halo order;  counts [P, P]: of p's halo, how many are q's
    union    [u] vertices in any halo, ascending;  ratio [u] R(v);  owner [u]
    keys     by worker: [m_p] the key of every place
    worth    [u] what vertices are ranked by, highest first: R(v), or -R(v) with `lowest`
    """

    def __init__(self, shard: Shard, comm: Comm, lowest: bool, hosts: int):
        self.hosts, self.rank = hosts, comm.rank
        self.counts = comm.gathered(shard.halo_counts).reshape(comm.size, -1)
        everything = comm.gathered(shard.halo)
        self.ids = np.split(everything, np.cumsum(self.counts.sum(1))[:-1])
        self.union, first, self.ratio = np.unique(everything, return_index=True, return_counts=True)
        self.worth = -self.ratio if lowest else self.ratio
        workers = np.arange(len(self.ids))
        self.owners = [np.repeat(workers, counts) for counts in self.counts]
        self.owner = np.concatenate(self.owners)[first]
        self.keys = [np.searchsorted(self.union, ids) for ids in self.ids]

    def count(self, comm: Comm) -> None:
        """Count in the running epoch what it cost to tell everybody."""
        own = self.ids[self.rank]
        for p in comm.peers:
            comm.recorder.count(-1, "forward", "ids", p, len(own), own.nbytes + self.counts[self.rank].nbytes)

    def best(self, p: int, k: int) -> np.ndarray:
        """H_p of Algorithm 1: the places [c] of the k vertices worth most of each owner (-1: all), the best
        first, ties by id.
        """
        worth, ids = self.worth[self.keys[p]], self.ids[p]
        chosen = np.arange(len(ids))
        if k >= 0:
            by_owner = np.lexsort((ids, -worth, self.owners[p]))
            start = np.concatenate([[0], np.cumsum(self.counts[p])])[:-1]
            rank_inside = np.arange(len(ids)) - start[self.owners[p][by_owner]]
            chosen = by_owner[rank_inside < k]
        return chosen[np.lexsort((ids[chosen], -worth[chosen]))]

    def best_of_all(self, k: int) -> np.ndarray:
        """H_CPU: the keys [c] that are in any H_p, in the same order."""
        keys = np.unique(np.concatenate([self.keys[p][self.best(p, k)] for p in range(len(self.ids))]))
        return self._ranked(keys, self.worth)

    def best_of_rest(self, k: int, held: list[np.ndarray]) -> np.ndarray:
        """The keys [c] of H_CPU that some worker looks up and does not hold: most such workers first.

        held   by worker: [m_p] bool, which places its own tier holds
        """
        keys = self.best_of_all(k)
        # Equation (2) over what local tiers leave: the workers whose halo has v and whose own tier has not.
        ratio = np.zeros(len(self.union), np.int64)
        for own, mask in zip(self.keys, held):
            ratio[own[~mask]] += 1
        return self._ranked(keys[ratio[keys] > 0], ratio)

    def host_of(self, keys: np.ndarray) -> np.ndarray:
        """The host [c] whose workers own the vertices of these keys, and look them up."""
        return self.owner[keys] // (len(self.ids) // self.hosts)

    def _ranked(self, keys: np.ndarray, worth: np.ndarray) -> np.ndarray:
        """keys [c] by descending worth [u], ties by id."""
        return keys[np.lexsort((self.union[keys], -worth[keys]))]


def fitting(memory_gb: float | None, reserved_mb: float, widths: Sequence[int]) -> float:
    """Vertices whose rows of all cached layers fit: floor((M 1024 - M_res) 1024^2 / sum_k 4 f_k), as printed
    in Algorithm 1.
    """
    if memory_gb is None or not sum(widths):
        return float("inf")
    return max(0, int((memory_gb * 1024 - reserved_mb) * MIB // (4 * sum(widths))))


def capacities(
    halos: Halos,
    cluster: Cluster,
    widths: Sequence[int],
    top_k: int,
    reserved_device_mb: float,
    reserved_host_mb: float,
) -> tuple[list[int], int]:
    """Algorithm 1: C_GPU of every worker and C_CPU, in vertices. widths: of the rows that are cached, by
    layer.
    """
    workers = range(len(halos.ids))
    local = [
        int(min(fitting(cluster.devices[p].memory_gb, reserved_device_mb, widths), len(halos.best(p, top_k))))
        for p in workers
    ]
    shared = min(fitting(cluster.host_memory_gb, reserved_host_mb, widths), len(halos.best_of_all(top_k)))
    return local, int(shared)


def global_tier(halos: Halos, capacity: int, best: np.ndarray) -> Selection:
    """The tier that holds, on each host, the first `capacity` keys of `best` [c] that are of that host. Each
    host counts its slots from 0, since it keeps only its own rows.
    """
    host, keys = halos.host_of(best), len(halos.union)
    tier, *others = (Selection(keys, capacity, best[host == k]) for k in range(halos.hosts))
    for other in others:
        tier.slots = np.maximum(tier.slots, other.slots)
        tier.capacity = max(tier.capacity, other.capacity)
    return tier


@dataclass
class Part:
    """Some places of every worker's halo, exchanged directly.

    plan    who sends which rows to whom;  places [k] where they belong in the own halo
    anyone  whether any worker has a place in it
    """

    plan: HaloPlan
    places: torch.Tensor
    anyone: bool


@dataclass
class Fetch:
    """Where each place's row comes from: a local slot, a global slot, or directly its owner.

    gradient   the places whose rows are computed in this epoch
    publish    own rows to put into global slots, before anyone gets them; `announced`: whether anyone has any
    keep       places whose rows go to local slots
    """

    direct: Part
    gradient: Part
    local_places: torch.Tensor
    local_slots: torch.Tensor
    shared_places: torch.Tensor
    shared_slots: torch.Tensor
    shared_counts: list[int]
    publish_rows: torch.Tensor
    publish_slots: torch.Tensor
    announced: bool
    keep_places: torch.Tensor
    keep_slots: torch.Tensor
    local_hits: int
    global_hits: int
    refreshed: int

    def found(self, lookups: int, expired: bool) -> dict[str, float]:
        """What the lookups of an epoch found, by metric.

        A hit is a row that was used as a tier held it, so a refresh, in which every row is computed anew, has
        none: `refreshed` are the lookups that would have been hits. `hit_rate` is hits over lookups in every
        epoch; `hit_rate_between_refreshes` is the same, and missing in a refresh.
        """
        hits = self.local_hits + self.global_hits
        values: dict[str, float] = {
            "lookups": lookups,
            "local_hits": self.local_hits,
            "global_hits": self.global_hits,
            "refreshed": self.refreshed,
            "misses": lookups - hits - self.refreshed,
        }
        if lookups:
            rates = ["hit_rate"] if expired else ["hit_rate", "hit_rate_between_refreshes"]
            values |= dict.fromkeys(rates, hits / lookups)
        return values


class Tiers:
    """The tiers' contents by key and place. `local`, this worker's; `shared`, everybody's, the same on all.

    Under `jaca` both hold the vertices of highest R(v), of the own halo and of all halos, for the whole run;
    under `low_overlap` those of lowest R(v).
    With `exclusive` tiers the global one holds the vertices that are looked up most often past a local tier,
    and serves a worker only vertices that its own tier does not hold, in a refresh too.
    Under `fifo` and `lru` the own tier takes in every row that is looked up, in halo order, and the global
    tier what was in neither, worker by worker: rows get there through a queue, so that in an epoch all find
    what it held at the start.
    """

    def __init__(
        self,
        halos: Halos,
        shard: Shard,
        comm: Comm,
        plan: HaloPlan,
        policy: str,
        local: list[int],
        shared: int,
        top_k: int,
        exclusive: bool,
    ):
        self.halos, self.comm, self.exclusive = halos, comm, exclusive
        self.local_row = np.searchsorted(shard.inner, halos.union)  # of keys that this worker owns
        self.segments = [rows.cpu().numpy() for rows in plan.send_rows.split(plan.send_counts)]
        me, places = comm.rank, [len(ids) for ids in halos.ids]
        self.queues: dict[str, Queue] = {}  # the tiers whose contents change
        if policy in FIXED:
            tiers = [Selection(m, c, halos.best(p, top_k)) for p, (m, c) in enumerate(zip(places, local))]
            self.held = [tier.slots != NONE for tier in tiers]
            best = halos.best_of_rest(top_k, self.held) if exclusive else halos.best_of_all(top_k)
            self.local: Tier = tiers[me]
            self.shared: Tier = global_tier(halos, shared, best)
            self.found, self.shared_found = self.local.slots, self.shared.slots
        else:
            self.local = self.queues["local"] = Queue(places[me], local[me], policy)
            self.shared = self.queues["shared"] = Queue(len(halos.union), shared, policy)
        self.taken = np.empty(0, np.int64)  # keys that the global tier takes in at the end of the epoch
        self.fetches: dict[bool, Fetch] = {}

    def advance(self) -> None:
        """Look up the whole halo of every worker for a new epoch; only `fifo` and `lru` change the tiers."""
        if isinstance(self.local, Selection) or isinstance(self.shared, Selection):
            return  # nothing is replaced
        me, keys = self.comm.rank, self.halos.keys
        self.fetches = {}
        self.found = self.local.access(np.arange(len(keys[me])))
        absent = torch.from_numpy(np.flatnonzero(self.found == NONE).astype(np.int32)).to(self.comm.device)
        # This exchange also tells everybody that the rows taken in after the last epoch are in host memory.
        told = [t.cpu().numpy() for t in self.comm.all_gather(absent, -1, "ids")]
        self.held = [np.isin(np.arange(len(keys[p])), places, invert=True) for p, places in enumerate(told)]
        self.shared_found = self.shared.slots.copy()
        # What no own tier has is looked up in the global one. Every worker makes the same changes in the same
        # order: first the uses of what the global tier holds, then the misses, worker by worker.
        asked = [keys[p][places] for p, places in enumerate(told)]
        for looked_up in asked:
            self.shared.touch(looked_up)
        missed = [looked_up[self.shared_found[looked_up] == NONE] for looked_up in asked]
        for queued in missed:
            self.shared.access(queued)
        distinct = np.unique(np.concatenate(missed))
        self.taken = distinct[self.shared.slots[distinct] != NONE]

    def fetch(self, expired: bool) -> Fetch:
        """What to do in this epoch for a layer. `expired`: nothing that a tier holds may be used, and all of
        it is computed and fetched anew.
        """
        if expired not in self.fetches:
            self.fetches[expired] = self._fetch(expired)
        return self.fetches[expired]

    def _fetch(self, expired: bool) -> Fetch:
        halos, me = self.halos, self.comm.rank
        # Of every worker, since each knows what the others ask it for: the places that a tier serves. In a
        # refresh the own tier serves none, and the global tier the rows that its owners put there first.
        in_shared = [self.shared_found[keys] != NONE for keys in halos.keys]
        if self.exclusive:
            in_shared = [mask & ~held for mask, held in zip(in_shared, self.held)]
        used = in_shared if expired else [a | b for a, b in zip(in_shared, self.held)]
        direct = self._part([~mask for mask in used])
        gradient = self._part([np.ones_like(mask) for mask in used]) if expired else direct
        local = np.flatnonzero(self.held[me] & (not expired))
        shared = np.flatnonzero(in_shared[me] if expired else in_shared[me] & ~self.held[me])
        mine = np.flatnonzero(expired & (self.shared_found != NONE) & (halos.owner == me))
        # Places whose rows go to the own tier: of those it is to hold, all in a refresh, else the new ones.
        keep = np.flatnonzero((self.local.slots != NONE) & (expired | (self.found == NONE)))
        either = in_shared[me] | self.held[me]
        return Fetch(
            direct,
            gradient,
            self._tensor(local),
            self._tensor(self.found[local]),
            self._tensor(shared),
            torch.from_numpy(self.shared_found[halos.keys[me][shared]]),
            np.bincount(halos.owners[me][shared], minlength=self.comm.size).tolist(),
            self._tensor(self.local_row[mine]),
            torch.from_numpy(self.shared_found[mine]),
            expired and bool((self.shared_found != NONE).any()),
            self._tensor(keep),
            self._tensor(self.local.slots[keep]),
            local_hits=len(local),
            global_hits=0 if expired else len(shared),
            refreshed=int(either.sum()) if expired else 0,
        )

    def _part(self, masks: list[np.ndarray]) -> Part:
        """The places [m_p] bool of every worker p, as an exchange."""
        halos, me = self.halos, self.comm.rank
        # Of every other worker's places those whose vertices this worker owns.
        rows = [rows[mask[owners == me]] for rows, mask, owners in zip(self.segments, masks, halos.owners)]
        receive = np.bincount(halos.owners[me][masks[me]], minlength=self.comm.size)
        plan = HaloPlan(self._tensor(np.concatenate(rows)), [len(r) for r in rows], receive.tolist())
        return Part(plan, self._tensor(np.flatnonzero(masks[me])), any(mask.any() for mask in masks))

    def taken_in(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Own rows that the global tier takes in at the end of the epoch, their slots, and the slots of all
        workers' rows that it then takes in.
        """
        mine = self.taken[self.halos.owner[self.taken] == self.comm.rank]
        slots = self.shared.slots
        return (
            self._tensor(self.local_row[mine]),
            torch.from_numpy(slots[mine]),
            torch.from_numpy(slots[self.taken]),
        )

    def own_slots(self) -> torch.Tensor:
        """The global slots that hold rows of this worker's."""
        return torch.from_numpy(
            self.shared.slots[(self.shared.slots != NONE) & (self.halos.owner == self.comm.rank)]
        )

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(self.comm.device)

    def state_dict(self) -> dict:
        return {name: tier.state_dict() for name, tier in self.queues.items()}

    def load_state_dict(self, state: dict) -> None:
        for name, tier in self.queues.items():
            tier.load_state_dict(state[name])


def direct_fetch(plan: HaloPlan, device: torch.device) -> Fetch:
    """No tiers: every row from its owner, in every epoch."""
    part, none = Part(plan, torch.arange(plan.num_halo, device=device), True), torch.empty(0)
    return Fetch(part, part, none, none, none, none, [], none, none, False, none, none, 0, 0, 0)
