"""PSC-GCN: Wang, Yu, Wang, Li, Jin, "On Pipelined GCN with Communication-Efficient Sampling and
Inclusion-Aware Caching".

Implements Algorithm 1 (pipelined training with staleness tau), Algorithm 2 with Theorem 2 (sampling
probabilities, eqs. 15-19), and the inclusion-aware feature cache of section V.

In iteration t, which is an epoch here, a worker has drawn the graph SG(t), to be trained on tau iterations
later, and told the owners of its boundary vertices which rows it needs. It trains on TG(t), the SG of tau
iterations before. Layer by layer it sends the boundary rows that others asked for SG(t), and uses those that
came for TG(t). Backward it sends the gradients of boundary rows to their owners, who add them to their own
tau iterations later.

Notation: TG(t) the sampled graph trained on in iteration t, SG(t) the one that is trained on in t + tau, so
TG(t + tau) = SG(t); the queue Q holds the tau graphs between. N_i the in-neighbours of i; p_ij probability of
edge j -> i; eps sampling rate; B_i = eps |N_i|, a real number, with sum_j p_ij = B_i (eq. 17); H^(t,l) the
input of layer l, which W^(l+1) multiplies; J its gradient; a_j 1.1 for an inner vertex, 1 for a boundary
vertex (VI-A2).

    Z_i = (P_ii H_i + sum_{j drawn} P_ij / p_ij H_j) W,   H_j of iteration t if j is inner,       (3), (15)
                                                          of t - tau if it is a boundary vertex
    J of the boundary rows of TG(t) is sent to their owners in t
    and added to their own gradient in t + tau                                                         (7)

Each edge is drawn by itself, Bernoulli(p_ij) (IV-A), with p_ij from Theorem 2's sqrt(a_j) ||y_ij||, so that
inner vertices are preferred, and ||y_ij|| = P_ij sqrt(sum_l ||H_j^(l) W^(l+1)||^2) of the last iteration
(eq. 16).

Decisions
- draws are by a counter (seed, graph number, i, j); the self-loop is always kept and not counted in N_i,
  where II-A1's sum over N_i contains it.
- P_ij = r_i c_j, and r_i cancels. Where all ||y_ij|| of a row are 0, p_ij = eps; where only some are, these
  get what the others leave, or 0 (eq. 17 wants more than 0).
- `norms=code`: sqrt(a_j) ||y_ij|| = sqrt(a_j sum_l ||H_j^(l)||), l = 1..L-1 the inputs of the layers after
  the first: sqrt(1.1 sum_l ||H_j^(l)||) for an inner vertex, as in the authors' code, which leaves out the
  last of these layers (and so fails with two).
- rescale 1 / p_ij (`selfnorm`: |N_i| / drawn neighbours of i).
- p and the cache (under `policy=inclusion`; other policies' is chosen once) are renewed every R iterations,
  "every certain iterations" in the paper. `refresh=null` makes R 100, ours, and in runs of fewer than 1000
  iterations a tenth of them. Before the first renewal p = eps and the cache goes by degree. What a renewal
  takes is sent and counted then: 4 bytes per boundary vertex for p, 1 byte for the cache, and the rows that
  are new in it.
- `tau` 1: Table II has 1 and 2. `cache` 0.2 is not printed; VI-C3 has 30 % of the boundary vertices.
- `policy=degree` counts in-edges; PaGraph counts out-edges, as many in an undirected graph.
- halo rows and incoming gradients are 0 in the first tau iterations: the paper does not say what stands for
  them. Line 9 uses rows where t > tau; here t >= tau, since those sent in iteration 0 are there.
- a request for rows takes one bit per row that could be asked for.
- edge weights are refused: P_ij would not be r_i c_j (eq. 16 would take them).
Departures
- `features=once`, the default, fetches all boundary features in the first epoch and aggregates layer 0 over
  all edges, neither sampled nor cached, which is exact since features are static; ||y_ij|| counts layer 0 all
  the same, as in eq. 16. `refetch` is as printed: what is sampled and not cached is sent.
- `gradients=tg`, the default, sends the gradients of TG(t)'s boundary rows. Algorithm 1 sends those of
  SG(t)'s (lines 24-25), most of which TG(t) does not have at a small rate: these are zeros under `sampled`.
- SG(t) is drawn and asked for in iteration t - 1, so that nobody waits for a request; in t itself, as line 7
  has it, where t is 0 or p or the cache is renewed in t.
- gradients leave after the weights' all-reduce, where the paper's second thread begins to send before it.
- owners know what each reader keeps, and push; in the paper each worker looks in its own map, and fetches.
- SampleGraph runs in the training thread (Algorithm 1: in its own); Adam takes the steps (eq. 9: plain ones).
"""

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from harness.base.bounds import ROUNDS, number, word
from harness.base.hollow import Unknown, either, hollow
from harness.comm.crossing import Crossing
from harness.comm.segments import RECORDS
from harness.comm.work import copied, moved, pack, sample, stream
from harness.core.adjacency import Propagation
from harness.core.features import Rows, precision, rows_times
from harness.core.kernels.spmm import spmm
from harness.core.propagate import propagate
from harness.core.system import Refuses, System, Traits, without_effect
from harness.data.partition.shard import Shard
from systems.parts.boundary import Drawn, FeatureCache
from systems.parts.pipeline import Pipe
from systems.parts.sampling import Edges


@dataclass
class Pscgcn(System[Shard, Propagation]):  # it replaces the propagation matrix by the drawn part of it
    """tau       staleness in iterations; 0: synchronous
    rate      eps, the share of a vertex's in-edges that is drawn, on average; 1 draws every edge
    sampling  how likely each edge is drawn: "variance", by Theorem 2, or "uniform", all with probability eps
    norms     what the probabilities of Theorem 2 go by: "layers": the norms of H W in every layer; "code":
              those of the hidden layers' H, as the authors' code has it
    rescale   what a drawn edge's weight is multiplied by: "inverse": 1 / p; "selfnorm": the vertex's
              in-degree over the number of its edges that were drawn
    gradients which boundary vertices' gradients are sent to their owners: "tg": those of the graph trained on
              (TG), or "sampled": those of the graph drawn for a later iteration (SG)
    inner_factor      a_j of Theorem 2 where j is a vertex of the worker itself
    boundary_factor   a_j where j is a boundary vertex, owned by another worker
    refresh   R, iterations between renewals of p and of the cache; null: a tenth of the run's, 1 to 100
    cache     share of the boundary vertices whose features are kept
    policy    which boundary vertices those are: "inclusion" (most likely to be drawn), "degree" (most
              in-edges) or "random"
    features  "once": layer 0's boundary rows are all fetched in the first epoch, and `cache` and `policy`
              have no effect; "refetch": those that are drawn and not cached are fetched in every epoch
    """

    tau: int = number(1, 0, 1000)  # graphs are drawn and kept so far ahead
    rate: float = number(0.1, 0, 1, above=True)
    sampling: str = word("variance", "uniform")
    norms: str = word("layers", "code")
    rescale: str = word("inverse", "selfnorm")
    gradients: str = word("tg", "sampled")
    inner_factor: float = number(1.1, 0, 10**6, above=True)
    boundary_factor: float = number(1.0, 0, 10**6, above=True)
    refresh: int | None = number(None, 1, ROUNDS)
    cache: float = number(0.2, 0, 1)
    policy: str = word("inclusion", "degree", "random")
    features: str = word("once", "refetch")

    exact: ClassVar = {"tau": 0, "rate": 1.0}
    refuses: ClassVar = Refuses(needed_rows="draws its samples from all boundary rows")

    def supports(self, run):
        if run.weighted:
            return (
                "pscgcn keeps one norm per vertex for its sampling probabilities, and edges of this graph"
                " have weights of their own; give another system, or leave edge_weight out of the file"
            )
        if self.tau > (most := RECORDS // (2 * run.layers) - 1):
            return f"system.tau={self.tau} has too many messages under way; give at most {most}"
        return super().supports(run)

    @property
    def renews_p(self) -> bool:
        return self.sampling == "variance" and self.rate < 1

    @property
    def renews_cache(self) -> bool:
        return self.features == "refetch" and self.policy == "inclusion" and 0 < self.cache < 1

    def traits(self):
        said = []
        if self.features == "once":
            why = "features=once keeps all boundary features; system.features=refetch caches a share"
            said += without_effect(self, ["cache", "policy"], why)
        elif self.cache in (0, 1):
            why = f"at system.cache={self.cache} there is nothing to choose"
            said += without_effect(self, ["policy"], why)
        if self.tau == 0:
            said += without_effect(self, ["gradients"], "at system.tau=0 SG and TG are the same graph")
        if not (self.renews_p or self.renews_cache):
            said += without_effect(self, ["refresh"], "neither probabilities nor a cache are renewed")
        theorem_2 = ["norms", "inner_factor", "boundary_factor"]
        if self.rate == 1:
            said += without_effect(self, [*theorem_2, "rescale"], "at system.rate=1 every edge is drawn")
        elif self.sampling == "uniform":
            why = "at system.sampling=uniform all edges are equally likely to be drawn"
            said += without_effect(self, theorem_2, why)
        return Traits(
            overlaps=self.tau > 0,
            follows_epochs=self.refresh is None and (self.renews_p or self.renews_cache),
            ineffective=said,
        )

    def setup(self, context):
        super().setup(context)
        self.full, self.model = context.adjacency, context.model
        self.period = context.chosen["refresh"] = self.period_of(context.epochs)
        self.edges = Edges.of(self.shard)
        self.draw_with(np.full(len(self.edges.columns), self.rate))
        self.dtype = torch.get_default_dtype()
        self.norm_sums = torch.zeros(self.shard.num_inner, dtype=self.dtype, device=self.device)
        first = 0 if self.features == "refetch" else 1
        self.rows_ahead = {l: Pipe(self.comm, l, "forward", [], []) for l in range(first, self.num_layers)}
        self.gradients_ahead = {
            l: Pipe(self.comm, l, "backward", [], [], held=True)
            for l in range(max(first, 1), self.num_layers)
        }
        self.queue: deque[Drawn] = deque()
        self.coming: Drawn | None = None  # the next iteration's graph, whose boundary rows are asked for
        counts = torch.tensor(self.plan.receive_counts)
        self.owner = torch.repeat_interleave(torch.arange(self.comm.size), counts).to(self.device)
        self.features_cache = FeatureCache(self)

    def period_of(self, epochs: int) -> int:
        """R of a run of so many epochs."""
        return self.refresh or max(1, min(100, epochs // 10))

    def repeats(self, epochs):
        period = self.period_of(epochs) if self.renews_p or self.renews_cache else 1
        return period + self.tau, period  # its graphs are trained on tau later

    def renewal(self, epoch: int) -> bool:
        """Whether an epoch begins by renewing p or the cache."""
        return epoch % self.period == 0 and (self.renews_p or self.renews_cache)

    # -- SampleGraph, Algorithm 2 --

    def renew(self) -> None:
        """Lines 4-7: p from the last iteration's norms, told to whoever has the vertex in its halo."""
        told = self.comm.exchange(self.plan, self.norm_sums[:, None], -1, "norms").wait()[:, 0]
        if hollow(told):
            if self.renews_cache and self.features_cache.size:
                raise Unknown("which rows the cache keeps")
            return self.draw_with(np.full(len(self.p), float(either())))
        y = torch.cat([self.norm_sums, told]).sqrt()
        _, column, halo_column = self.full.scales()
        c = 1.0 if column is None or self.norms == "code" else np.concatenate([column, halo_column])
        a = np.repeat([self.inner_factor, self.boundary_factor], [self.shard.num_inner, self.shard.num_halo])
        weight = np.sqrt(a) * c * y.cpu().numpy().astype(np.float64)
        self.draw_with(self.edges.probabilities(weight, self.rate))

    def draw_with(self, p: np.ndarray) -> None:
        """Draw edges with probabilities p [E] from now on."""
        self.p = p
        self.inverse: np.ndarray | None = None  # 1 / p, made when it is asked for

    def sample_graph(self, number: int) -> Drawn:
        """Line 8: draw graph `number`, and ask for its boundary rows. Once it has been settled, the owners
        know what to send."""
        with self.recorder.inside("rest", "sample"):
            mask = self.edges.draw(self.p, (self.seed << 32) + number)
            self.recorder.work(sample(int(np.count_nonzero(mask)), len(mask)))
        drawn = Drawn(self, mask, self.factor(mask))
        drawn.ask(self)
        return drawn

    def factor(self, mask: np.ndarray) -> np.ndarray:
        """What a drawn edge's weight is multiplied by  [E]."""
        if self.rescale == "inverse":
            if self.inverse is None:
                inverse = np.divide(1.0, self.p, out=np.zeros(len(self.p)), where=self.p > 0)
                self.inverse = inverse.astype(precision())
            return self.inverse
        rows = np.repeat(np.arange(self.shard.num_inner), np.diff(self.edges.indptr))
        drawn = np.bincount(rows[mask], minlength=self.shard.num_inner)
        factor = np.divide(np.diff(self.edges.indptr), drawn, out=np.zeros(len(drawn)), where=drawn > 0)
        return factor[rows].astype(precision())

    # -- Algorithm 1 --

    def before_epoch(self, epoch):
        with self.recorder.inside("rest", "blocks"):
            if epoch == 0:  # lines 2-3
                self.queue.extend(self.sample_graph(number).settle(self) for number in range(self.tau))
            if self.renews_p and epoch and self.renewal(epoch):
                self.renew()
            if self.features == "refetch" and (epoch == 0 or (self.renews_cache and self.renewal(epoch))):
                self.features_cache.renew(epoch)
            # Lines 6-7. What is asked for in one iteration is sent in the next, so that nobody waits for a
            # request. A graph for which p is renewed is drawn after the renewal.
            self.queue.append((self.coming or self.sample_graph(epoch + self.tau)).settle(self))
            self.coming = None if self.renewal(epoch + 1) else self.sample_graph(epoch + 1 + self.tau)
            self.ahead, self.now = self.queue[-1], self.queue.popleft()  # SG and TG
            self.adjacency = self.now.adjacency
            if self.features == "refetch":
                hit = self.ahead.hit
                self.recorder.metric("hit_rate", float(hit.float().mean()) if len(hit) else 0.0, 0)
            self.recorder.metric("drawn_edges", np.count_nonzero(self.now.mask) / max(len(self.now.mask), 1))
            self.recorder.metric("drawn_boundary", len(self.now.boundary) / max(self.shard.num_halo, 1))
        # The last iteration before a renewal adds up the norms that ||y|| is made of.
        self.recording = self.renews_p and self.renewal(epoch + 1)
        if self.recording:
            self.norm_sums.zero_()
            if self.features == "once":
                self.record(0, self.full.features.own, self.model.layers[0].weight)

    @torch.no_grad()
    def record(self, layer: int, h: torch.Tensor, weight: torch.Tensor) -> None:
        """Add to `norm_sums` [n] the squared norms of a layer's own rows of H W; at norms=code the norms of
        its own rows of H, of layer 0 none."""
        if self.norms == "layers":
            self.norm_sums += rows_times(self.full.inner_rows(h), weight, self.recorder).square().sum(1)
        elif layer > 0:
            self.norm_sums += torch.linalg.vector_norm(h.detach(), dim=1)

    def propagate(self, layer, h, weight, dropout):
        if self.recording:
            self.record(layer, h, weight)
        features = self.full.layer_0(h)
        if self.features == "refetch" and features is not None and features.sparse:
            return self.propagate_sparse(h, weight, dropout)
        return propagate(self.now.adjacency, h, self.halo(layer, h), weight, dropout)

    def propagate_sparse(self, h, weight, dropout):
        """Layer 0 of features that are mostly 0: boundary rows are multiplied without their zeros. Features
        have no gradient."""
        adjacency = self.now.adjacency
        x_halo = self.sparse_rows(h)
        z = spmm(adjacency.inner, rows_times(dropout.inner(adjacency.inner_rows(h)), weight, self.recorder))
        if adjacency.halo is None:
            return z
        return spmm(
            adjacency.halo, rows_times(dropout.halo(x_halo, adjacency.drawn), weight, self.recorder), z
        )

    def sparse_rows(self, h: torch.Tensor) -> Rows:
        """Layer 0's boundary rows of TG(t)  [k, f0], sparse where that saves; sends those of SG(t)."""
        features, arrived = self.full.features, self.exchange(0, h)
        if arrived is None:
            return features.halo(h.new_zeros(len(self.now.boundary), h.shape[1]))
        rows = self.features_cache.complete_sparse(self.now, arrived)
        if rows is None:
            return features.halo(self.complete(arrived))
        self.recorder.work(stream(len(arrived), arrived.shape[1], arrived.itemsize, 1, 0))
        return rows

    def halo(self, layer, h):
        """Lines 9-14: the boundary rows of TG(t), sent in iteration t - tau; sends those of SG(t)."""
        return StaleRows(self, layer, h)

    def exchange_rows(self, layer: int, h: torch.Tensor) -> torch.Tensor:
        """Send H^(t,l) of SG(t)'s boundary rows, return TG(t)'s  [k, F]."""
        arrived = self.exchange(layer, h)
        if arrived is None:
            return h.new_zeros(len(self.now.boundary), h.shape[1])
        if layer == 0:
            return self.complete(arrived)
        rows = arrived.clone()  # the memory that rows arrive in is a later exchange's again
        self.recorder.work(copied(rows))
        return rows

    def exchange(self, layer: int, h: torch.Tensor) -> torch.Tensor | None:
        """As `exchange_rows`, but without layer 0's rows that are cached; None while nothing has been sent
        for TG(t)."""
        asked = self.ahead.request if layer else self.ahead.missing
        assert asked is not None, "layer 0 is exchanged under refetch only"
        with self.recorder.inside("rest", "pack", layer):
            pipe = self.rows_ahead[layer]
            packed = pipe.outgoing((len(asked.rows), h.shape[1]), h.dtype, self.tau)
            torch.index_select(h.detach(), 0, asked.rows, out=packed)
            self.recorder.work(moved(packed))
        return pipe.push(packed, self.tau, asked.send, asked.receive)

    def complete(self, arrived: torch.Tensor) -> torch.Tensor:
        """Layer 0's boundary rows of TG(t)  [k, f0]: those that arrived, and those in the cache."""
        kept = pack(len(self.now.slots), arrived.shape[1], arrived.itemsize)
        self.recorder.work(moved(arrived), *[kept] * 2)
        return self.features_cache.complete(self.now, arrived)

    def exchange_gradients(self, layer: int, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Lines 21-25: send the gradients g [k, F] of boundary rows; returns own rows and the gradients that
        arrived for them."""
        sent = self.now
        if self.gradients == "sampled":
            sent = self.ahead  # its boundary rows that TG(t) does not have get zeros
            whole = g.new_zeros(self.shard.num_halo, g.shape[1]).index_copy(0, self.now.boundary, g)
            g = whole[sent.boundary]
        pipe = self.gradients_ahead[layer]
        arrived = pipe.push(g, self.tau, sent.request.receive, sent.request.send, tag=sent.request.rows)
        if arrived is None:
            return self.plan.send_rows[:0], g[:0]
        assert pipe.tag is not None
        return pipe.tag, arrived

    def after_epoch(self, epoch):
        for pipe in self.gradients_ahead.values():
            pipe.post()

    def state_dict(self):
        pipes = [
            {l: pipe.state_dict() for l, pipe in group.items()}
            for group in (self.rows_ahead, self.gradients_ahead)
        ]
        return {
            "p": torch.from_numpy(self.p),
            "norm_sums": self.norm_sums,
            "pipes": pipes,
            "queue": [drawn.state_dict() for drawn in self.queue],
            "coming": self.coming and self.coming.settle(self).state_dict(),
            "cache": self.features_cache.state_dict(),
        }

    def load_state_dict(self, state):
        self.draw_with(state["p"].cpu().numpy())
        self.norm_sums = state["norm_sums"]
        for group, saved in zip((self.rows_ahead, self.gradients_ahead), state["pipes"]):
            for l, pipe in group.items():
                pipe.load_state_dict(saved[l])
        self.features_cache.load_state_dict(state["cache"])
        self.queue = deque(Drawn.restore(self, saved) for saved in state["queue"])
        self.coming = state["coming"] and Drawn.restore(self, state["coming"])


class StaleRows(Crossing):
    """Sends and takes boundary rows when h is there; sends and takes their gradients in the backward pass."""

    def __init__(self, system: Pscgcn, layer: int, h: torch.Tensor):
        self.system = system
        super().__init__(system.recorder, layer, h)

    def send(self, h):
        self.rows = self.system.exchange_rows(self.layer, h)

    def take(self):
        return self.rows

    def send_back(self, g):
        self.returned = self.system.exchange_gradients(self.layer, g)

    def take_back(self):
        return self.returned
