"""CaPGNN: Song, Zou, Shi, "CaPGNN: Optimizing Parallel Graph Neural Network Training with Joint Caching and
Resource-Aware Graph Partitioning", Neurocomputing.

Implements JACA (section 4.2: two tiers, overlap ratio eq. 2, Algorithm 1; systems/parts/jaca.py,
systems/parts/tier_rows.py), RAPA (section 4.3: eqs. 13-16, Algorithms 2 and 3; systems/parts/rapa.py) and the
pipeline of section 4.2. Each can be switched off (Table 8).

Before training, RAPA takes halo vertices away from the workers whose cost is above the mean. In every epoch
and layer a worker takes each row of its halo from its local tier; if that has not got it, from the global
tier; and otherwise from its owner, fresh. In every N-th epoch all cached rows are computed anew. With the
pipeline a layer aggregates the halo that was asked for in the epoch before. Backward, the gradients of halo
rows go to their owners, who add them to their own.

Notation: m halo vertices of a worker; R(v) the overlap ratio, in how many workers' halos v is; N =
`refresh`. The local tier is a worker's own; the global tier is shared by all workers of the host.

Decisions
- What is cached: halo rows of every hidden layer and, under `features=refetch`, of layer 0. A tier that
  holds a vertex holds its rows of all these layers.
- Who is cached: the vertices of highest R(v), of the own halo (local tier) and of all halos (global tier),
  ties by id; they stay for the whole run. Capacities are Algorithm 1's, from the memory of the cluster's
  devices and host and the bytes of all cached layers, or numbers of vertices per tier.
- Tiers: `inclusive` by default, since section 4.2 has it so: for vertices that are only in a local cache,
  "their features are copied to the global cache", and Algorithm 1 sizes the global tier for all that the
  devices may hold. Where the global tier is not larger than a worker's own, all that this worker needs of it
  is in its own tier already, so that it never hits the global one (with `top_k=-1`). `tiers=exclusive` is a
  variant: for the global tier R(v) counts only the workers whose local tier does not hold v, and the tier
  serves only those. The hit rates of both are under the first picture.
- For Fig. 14: `policy=low_overlap` takes the lowest R(v) wherever `jaca` takes the highest; `capacity_share`
  sizes the tiers by a share of the most they could hold, the worker's halo and all halos together.
- `fifo` and `lru` use the same two tiers: every lookup enters the local tier, in halo order; what was in
  neither enters the global tier through a queue at the end of the epoch, worker by worker. The ids looked
  up in vain are told to all workers, 4 bytes per id, counted.
- Refresh: in every epoch that N divides all cached rows are computed anew, so that none is ever older
  than N - 1; layer 0 never needs it. Section 4.2 has "a configurable number of iterations", and no number is
  printed; 10 is this project's. In a refresh the owner of a row that the global tier holds writes it there,
  and every worker that uses it reads it from there. It is counted once per reading worker (`global_get`), as
  if it had been sent to each; the owner's write is not counted. A worker that has written its rows tells each
  other worker of its host so, in one byte (`flags`). A miss is fetched fresh from its owner.
- Hit rate: the paper does not say whether rows that a refresh computes anew are hits. Both rates are traced:
  `hit_rate` over all lookups, where those rows are no hits; and `hit_rate_between_refreshes`, which leaves
  the lookups of a refresh out, since all its rows are computed anew.
- Backward pass: `gradients=exact`, the default, sends the gradients of all halo rows to their owners in every
  epoch. Section 4.2 describes the cache for the forward pass, "for clarity", and has cached features "also
  used by backward computation through the standard autograd pipeline", which leaves open whether gradients of
  cached rows travel. Section 5.5 says that "gradient-related communication in the backward and update stages"
  remains when the cache holds every halo vertex; and only with all gradients do the bytes come near the
  communication in Table 8. `gradients=fresh` is a variant with fewer bytes: only the rows that were computed
  in the epoch have gradients, and cached rows are constants.
- Layer 0: raw features never change, so `features=once`, the default of every system here, fetches them one
  time, which is exact. The paper caches them like every layer's rows: `features=refetch`, which its
  experiments need. Under `once` no knob of JACA is without effect in a model with a hidden layer: `policy`,
  capacities and the rest then concern the hidden layers alone, and Algorithm 1 counts their bytes alone.
- Pipeline: section 4.2 has queues that overlap communication with computation, and rows "written into the
  cache in previous iterations". Here an epoch uses the halo that was asked for in the epoch before, one
  more epoch of staleness; epoch 0 uses its own. What is fetched for the next epoch travels in buffers of
  its own, forward and backward apart.
- RAPA: alpha 0.35, M_vertex and M_edge (8 bytes each) and M^res (1 GiB each) are not printed. Times are Table
  1's, of matrices of 16384 (those of section 4.3, of 11585, are not printed), relative to the slowest device.
  It stops at a population std of lambda below 1 % of the mean, or when no worker can improve. The lowest S_k
  go first, until the estimated cost is at most (lambda_i + mean) / 2, lambda_i the cost before this turn.
  The weakest device, which the paper does not define, is the one on which an inner vertex and an outer edge
  cost most together. In eq. (16) C is R(v) of the partition as given, out-degrees are of the subgraph,
  in-degrees of the whole graph, and edges from inner to halo vertices count in S_k alone.
  `rapa_degrees=global`: kept edges keep their weight. Part i goes to device i, in the partition's own order,
  which METIS and random draw by the seed (4.3: "randomly assigned to different GPUs"). A graph with edge
  weights needs `rapa=false`: eq. (16) knows none.
- Available memory (Algorithm 1) is all of a device's or the host's, less the reserves.
- Device times and memory: those of the cluster preset (Tables 1 and 3), or measured on the workers at the
  start (`cluster=measured`).
- Several hosts (section 5.11): `hosts` makes as many groups of workers. "Each machine runs CaPGNN
  independently and then synchronizes gradients across machines" (Fig. 23): training drops edges between
  hosts, degrees, RAPA and the global tier are those of a host, and only weights' gradients travel between
  hosts (and, once, halo ids). `partition.hosts=2` of METIS cuts the graph for hosts first.
- What workers tell each other at the start: JACA's halo ids are counted in epoch 0; RAPA's costs and masks,
  told before the shards are there, are not.
Departures: of the three queues of section 4.2 the prefetch queue is the direct exchange, in the background,
and with `pipeline` an epoch ahead; local and global queue are copies made by the training thread, of memory
to memory on one host, timed as waits. Tiers are agreed on before the first epoch instead of looked up by
hash, since all workers know all halos: no locks, and under `jaca` no id travels after the start. Section 4.2
replaces cached vertices by their overlap ratio; here ranks are fixed before training, so that nothing is
replaced. Eq. (15) has the bytes of features once; here they are
counted per vertex. A part that does not fit its device loses halo vertices even where its cost is below the
mean, which Algorithm 3's loop would not take away. Subgraphs are not reordered (Fig. 13).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, word
from harness.base.errors import InputError
from harness.comm.crossing import Crossing
from harness.comm.work import moved
from harness.core.mixins import FitsDevices
from harness.core.system import Refuses, System, Traits, without_effect
from systems.parts.jaca import FIXED, POLICIES, TIERS, Halos, Tiers, capacities, direct_fetch
from systems.parts.rapa import apart, restrict
from systems.parts.tier_rows import Request, TierRows


@dataclass
class Capgnn(FitsDevices, System):
    """jaca   true: the joint cache; false: every row is fetched fresh
    policy   which vertices are cached: "jaca" (highest overlap ratio), "low_overlap", "fifo" or "lru"
    tiers   "inclusive" (global tier: highest overlap ratio) or "exclusive" (of what local tiers do not hold)
    capacity   vertices in each worker's tier and in the global one; null: Algorithm 1, from the
        devices' and the host's memory less the reserves
    capacity_share   instead of capacity: of each tier's largest, the own halo and all halos; 0 to 1
    local_capacity   vertices in each worker's own tier; null: as capacity
    global_capacity   vertices in the global tier, in host memory; null: as capacity
    top_k   vertices taken from each neighbour's part, highest overlap ratio first (Algorithm 1); -1: all
    reserved_device_mb   M_GPU^res of Algorithm 1: device memory that the cache leaves free, MiB
    reserved_host_mb   M_CPU^res of Algorithm 1: host memory that the cache leaves free, MiB
    refresh   epochs from one refresh to the next: cached rows are at most refresh - 1 epochs old,
        one more with the pipeline; 1: exact without rapa and pipeline, on one host
    gradients   "exact": of all halo rows, in every epoch; "fresh": only of those computed in the epoch
    features   "once": layer 0 is fetched whole, one time; "refetch": it is cached like the hidden layers
    rapa   true: halo vertices leave workers whose cost (eqs. 13-15) is above the mean
    alpha   weight of edges against vertices (eq. 14)
    threshold   Algorithm 2 stops at std(lambda) below this share of its mean
    rapa_degrees   "global": kept edges keep their weight; "local": weights are normalised again
    vertex_bytes   M_vertex of eq. 15: bytes per vertex, its features left out
    edge_bytes   M_edge of eq. 15: bytes per edge
    beta_mb   beta of eq. 15: memory that a worker needs whatever its part, MiB
    pipeline   true: the halo that was asked for in the epoch before is aggregated
    hosts   groups of consecutive workers, each of which runs CaPGNN on its part of the graph (section 5.11)
    """

    jaca: bool = True
    policy: str = word(*POLICIES)
    tiers: str = word(*TIERS)
    capacity: int | None = number(None)
    capacity_share: float | None = number(None, 0, 1)
    local_capacity: int | None = number(None)
    global_capacity: int | None = number(None)
    top_k: int = number(-1, -1)
    reserved_device_mb: float = number(1024)
    reserved_host_mb: float = number(1024)
    refresh: int = number(10, 1, ROUNDS)
    gradients: str = word("exact", "fresh")
    features: str = word("once", "refetch")
    rapa: bool = True
    alpha: float = number(0.35, 0, 1)
    threshold: float = number(0.01)
    rapa_degrees: str = word("global", "local")
    vertex_bytes: float = number(8)
    edge_bytes: float = number(8)
    beta_mb: float = number(100)
    pipeline: bool = True
    hosts: int = number(1, 1)

    exact: ClassVar = {"jaca": False, "rapa": False, "pipeline": False}
    refuses: ClassVar = Refuses(needed_rows="caches rows by their place in the whole halo")

    def __post_init__(self):
        if self.tiers == "exclusive" and self.policy != "jaca":
            why = f"tiers=exclusive ranks vertices by overlap ratio and policy={self.policy} does not"
            raise InputError(f"{why}; give policy=jaca or tiers=inclusive")
        if self.capacity_share is not None and self.capacity is not None:
            both = f"capacity={self.capacity} and capacity_share={self.capacity_share}"
            raise InputError(f"{both} both size the tiers; give one")
        if self.hosts > 1 and self.jaca and (self.policy not in FIXED or self.capacity_share is not None):
            given, instead = f"policy={self.policy}", "policy=jaca or policy=low_overlap"
            if self.policy in FIXED:
                given, instead = f"capacity_share={self.capacity_share}", "capacity"
            raise InputError(f"{given} knows one host, and hosts={self.hosts}; give {instead}, or hosts=1")

    def supports(self, run):
        if run.num_workers % self.hosts:
            return (
                f"system.hosts={self.hosts} does not divide workers={run.num_workers}; give system.hosts=1 or"
                " another divisor of workers"
            )
        if run.weighted and (self.rapa or self.hosts > 1):
            what, instead = "system.rapa=true scores halo vertices by degrees (eq. 16)", "system.rapa=false"
            if not self.rapa:
                what, instead = f"system.hosts={self.hosts} counts degrees on each host", "system.hosts=1"
            return (
                f"{what}, which know no edge weights, and the edges of this graph have some; give {instead},"
                " or leave edge_weight out of the file"
            )
        if run.wire != "float32" and self.jaca:
            return (
                f"wire={run.wire} cannot be: capgnn passes rows through caches in shared memory, which hold"
                " them as they are; give wire=float32, or system.jaca=false, which caches nothing"
            )
        return super().supports(run)

    def traits(self):
        both = None not in (self.local_capacity, self.global_capacity)  # each tier has a size of its own
        sizes = self.jaca and self.capacity is None and self.capacity_share is None and not both
        said = []
        if not self.jaca:
            tiers = ["policy", "tiers", "capacity", "capacity_share", "local_capacity", "global_capacity"]
            tiers += ["top_k", "reserved_device_mb", "reserved_host_mb", "refresh", "gradients"]
            said += without_effect(self, tiers, "at system.jaca=false nothing is cached")
        elif not sizes:
            reserved = ["reserved_device_mb", "reserved_host_mb"]
            said += without_effect(self, reserved, "the tiers' sizes are given")
            if self.policy not in FIXED:
                said += without_effect(
                    self, ["top_k"], f"system.policy={self.policy} takes what is asked for"
                )
            if both:
                why = "system.local_capacity and system.global_capacity are given"
                said += without_effect(self, ["capacity", "capacity_share"], why)
        if not self.rapa:
            costs = ["alpha", "threshold", "rapa_degrees", "vertex_bytes", "edge_bytes", "beta_mb"]
            said += without_effect(self, costs, "at system.rapa=false no halo vertex is taken away")
        return Traits(overlaps=self.pipeline, devices=self.rapa or sizes, ineffective=said)

    def restrict(self, shard, comm):
        """RAPA: the halo vertices that this worker keeps."""
        self.balancing: list[dict[str, float]] = []
        per_host = comm.size // self.hosts
        start = comm.rank // per_host * per_host
        self.among = range(start, start + per_host)  # the workers of this host
        if self.hosts > 1:
            shard = apart(shard, comm, self.among)
        if not self.rapa or per_host == 1:
            return shard
        names = "alpha", "threshold", "vertex_bytes", "edge_bytes", "beta_mb"
        knobs = {name: getattr(self, name) for name in names}
        kept, self.balancing = restrict(
            shard, comm, self.cluster, degrees=self.rapa_degrees, among=self.among, **knobs
        )
        return kept

    def setup(self, context):
        super().setup(context)
        self.epoch, self.cache = 0, None
        # pipeline: by layer, what was asked for last and is used in the next epoch
        self.ahead: dict[int, Request] = {}
        self.all_rows = direct_fetch(self.plan, self.device)
        if not self.jaca:
            return
        first = 1 if self.features == "once" else 0
        widths = {l: self.widths[l] for l in range(first, self.num_layers)}
        self.halos = Halos(self.shard, self.comm, self.policy == "low_overlap", self.hosts)
        sizes = self.sizes(self.halos, list(widths.values()))
        whose = (self.halos, self.shard, self.comm, self.plan)
        self.cache = Tiers(*whose, self.policy, *sizes, self.top_k, self.tiers == "exclusive")
        self.rows = TierRows(self.cache, self.comm, widths, self.among)

    def sizes(self, halos: Halos, widths: list[int]) -> tuple[list[int], int]:
        """Vertices that each worker's tier and the global tier hold: as given, or by Algorithm 1."""
        if self.capacity_share is not None:
            most = [*map(len, halos.ids), len(halos.union)]
            *local, shared = (int(self.capacity_share * vertices) for vertices in most)
        else:
            reserved = self.reserved_device_mb, self.reserved_host_mb
            local, shared = capacities(halos, self.cluster, widths, self.top_k, *reserved)
        given = self.local_capacity, self.global_capacity
        own, common = (self.capacity if size is None else size for size in given)
        return local if own is None else [own] * len(halos.ids), shared if common is None else common

    # -- an epoch --

    def before_epoch(self, epoch):
        self.epoch = epoch
        for iteration, size in enumerate(self.balancing if epoch == 0 else ()):
            for name, value in size.items():
                self.recorder.metric(name, value, iteration)
        if self.cache is None:
            return
        if epoch == 0:
            self.halos.count(self.comm)
        with self.recorder.inside("rest", "check"):
            self.cache.advance()
        self.recorder.metric("local_capacity", self.cache.local.capacity)
        self.recorder.metric("global_capacity", self.cache.shared.capacity)

    def halo(self, layer, h):
        return CachedHalo(self, layer, h)

    def request(self, layer: int, h: torch.Tensor) -> Request:
        """Ask for a layer's halo: send what others ask for, put into the global tier what is new in it."""
        # Where each row comes from: all workers know all lookups, so this says also what others ask for.
        if self.cache is None:
            fetch = self.all_rows
        else:
            # Raw features never grow old: they are fetched once.
            expired = self.epoch % self.refresh == 0 if layer else self.epoch == 0
            with self.recorder.inside("rest", "check", layer):
                fetch = self.cache.fetch(expired)
            for name, value in fetch.found(self.plan.num_halo, expired).items():
                self.recorder.metric(name, value, layer)
        request = Request(layer, self.epoch, h.shape[1], fetch)
        # Rows that no tier serves travel directly from their owners; `collect` waits for them.
        if fetch.direct.anyone:
            plan = fetch.direct.plan
            with self.recorder.inside("rest", "pack", layer):
                packed = h.index_select(0, plan.send_rows)
                self.recorder.work(moved(packed))
            request.flight, request.arrived = self.comm.start_exchange(
                packed, *plan.counts("forward"), layer, "forward", "halo", self.epoch % 2
            )
            request.sent = packed
        # In a refresh owners write their rows of the global tier, and announce that they have.
        if fetch.announced:
            self.rows.renew_shared(layer, fetch, h, self.epoch)
            request.announcement = self.rows.announce(layer)
        if self.cache is not None:
            self.rows.stage(layer, h)
        return request

    def due(self, request: Request) -> Request:
        """The request whose rows are used now: with `pipeline` the last epoch's, which epoch 0 has not."""
        if not self.pipeline:
            return request
        due = self.ahead.get(request.layer, request)
        self.ahead[request.layer] = request
        return due

    def read_global(self, request: Request) -> None:
        """Take the rows that come from the global tier, once their owners have put them there."""
        if request.announcement is not None:
            request.announcement.wait()
            request.announcement = None
        if self.cache is not None and request.rows is None and request.shared is None:
            request.shared = self.rows.from_shared(request.layer, request.fetch)

    def collect(self, request: Request) -> torch.Tensor:
        """The halo [m, F] that was asked for; the own tier keeps those of its rows that it is to hold."""
        if request.rows is not None:
            return request.rows
        layer = request.layer
        if request.flight is not None:
            request.flight.wait()
        self.read_global(request)
        if self.cache is None:
            assert request.arrived is not None, "without tiers every row comes from its owner"
            request.rows = request.arrived
            return request.rows
        assert request.shared is not None, "read_global has taken them"
        request.rows, request.oldest = self.rows.assemble(
            layer, request.fetch, request.epoch, self.plan.num_halo, request.arrived, request.shared
        )
        request.arrived = request.flight = request.sent = request.shared = None
        return request.rows

    def after_epoch(self, epoch):
        if self.cache is not None:
            self.rows.take_in(epoch)

    def state_dict(self):
        for request in self.ahead.values():
            self.collect(request)
        state = {"ahead": {l: request.state_dict() for l, request in self.ahead.items()}}
        return state if self.cache is None else {**state, **self.rows.state_dict()}

    def load_state_dict(self, state):
        self.ahead = {l: Request.restore(l, ahead, self.all_rows) for l, ahead in state["ahead"].items()}
        if self.cache is not None:
            self.rows.load_state_dict(state)


class CachedHalo(Crossing):
    """Forward, the rows that are not cached are asked for when h is there. Backward, gradients of halo rows
    go to the rows' owners."""

    def __init__(self, system: Capgnn, layer: int, h: torch.Tensor):
        self.system = system
        super().__init__(system.recorder, layer, h)

    def send(self, h):
        self.asked = self.system.request(self.layer, h)
        self.request = self.system.due(self.asked)

    def take(self):
        system, request = self.system, self.request
        rows = system.collect(request)
        if system.cache is not None and self.layer:
            self.recorder.metric(
                "staleness", 0 if request.oldest is None else system.epoch - request.oldest, self.layer
            )
        # The global tier changes again before the epoch in which these rows are used.
        system.read_global(self.asked)
        return rows

    def send_back(self, g):
        exact = self.system.gradients == "exact"  # then all rows' gradients return to the owners
        self.part = (self.system.all_rows if exact else self.request.fetch).gradient
        self.flight = None
        if self.part.anyone:
            with self.recorder.inside("rest", "pack", self.layer):
                self.sent = g.index_select(0, self.part.places)
                self.recorder.work(moved(self.sent))
            self.flight, self.returned = self.system.comm.start_exchange(
                self.sent, *self.part.plan.counts("backward"), self.layer, "backward", "halo"
            )

    def take_back(self):
        if self.flight is None:
            return None
        self.flight.wait()
        return self.part.plan.send_rows, self.returned
