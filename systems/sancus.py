"""SANCUS: Peng, Chen, Shao, Shen, Chen, Cao, "SANCUS: Staleness-Aware Communication-Avoiding Full-Graph
Decentralized Training in Large-Scale Graph Neural Networks", VLDB 2022; cited from "Scaling Graph Neural
Networks: Innovations in Distributed and Decentralized Training for Billion-Scale Graphs", section 4.3.

Implements Algorithm 3 (training by skip-broadcast) with the staleness checks of Algorithm 4 (`epoch_fixed`,
SCS-E), Algorithm 5 (`epoch_adaptive`, SCS-A) and Algorithm 6 (`variation_gap`, SCS-H), equations (2) to (5)
and (7); the optimiser is the trainer's.

Forward, before every layer, the staleness check finds which blocks are ACTIVE. Their owners broadcast them
and all others cache them; in the place of a STALE block the others use the copy that they have cached.
Backward, every worker broadcasts its block of delta in every epoch, but for layer 0's under `features=once`.

Notation: P(j) worker j; H_j^(l) its block of the input of layer l, Ht_j^(l) the block as last broadcast,
cached by all others; F(j) its flag, ACTIVE or STALE; Ver the epoch, Ver(j) the epoch in which block j was
last due (that of Ht_j, but where epoch 0 or `warmup` broadcast it before its turn); delta_j its block of
dL/dZ.

Decisions
- equations (4) and (5) are printed with delta before A and H, an order in which shapes do not fit; here
  dL/dH = A^T delta W^T and dL/dW = H^T A^T delta, as (2) gives them.
- norm of ||H - Ht|| > eps_H, which the paper leaves open: Frobenius, divided by the norm of the cached block
  (`relative`). Absolute: `max`, the largest |entry|; `fro`, Frobenius; `mean`, the mean of |H - Ht| over the
  block's entries. A norm that is not a number exceeds every bound.
- one flag per layer and block (`flags=layer`).
- under `variation_gap` each worker sends F(j) to each other in one byte per layer, counted; the
  epoch rules are known to all from the versions and need none.
- epoch_fixed broadcasts when Ver - Ver(j) > eps_E: every eps_E + 1 epochs. epoch_adaptive does so by block.
  In epoch 0, when caches are empty, and in the other epochs of `warmup` every block of the layers under the
  rule is broadcast; this does not move the version of a block whose turn comes later.
- `phase` of SCS-A: all blocks have one version after epoch 0. Algorithm 5 prints "EndProcedure for P(j)"
  where P(i) finds the block of P(j) too stale. Read as the end of P(i)'s check (`paper`), at most two blocks
  are found per check, since all P(i) see the same versions; with more than 2 (eps_A + 1) workers the last
  blocks are then never broadcast again, against Definition 2. On the four workers of Figure 14(b), with
  eps_A = 1, blocks take turns, as drawn. Read as the end of P(j)'s own check, all stale blocks are found, and
  from equal versions SCS-A is SCS-E. So that blocks take turns on any number of workers, `stagger`, ours, is
  the default: block j is first due at epoch j mod (eps_A + 1), and every block is broadcast when it is due.
- delta_j is clipped locally to th sqrt(P) as printed, th = inf by default; `clip_scale=inverse` for
  th / sqrt(P). dL/dW = sum_i H_i^T (A^T delta)_i with own, fresh H_i (eq. 5).
- preset `sancus/official` makes the broadcasts of the authors' public code, with its cache switched on: those
  of layer 0's blocks are skipped after the first epoch, its product is not, and its deltas travel in every
  epoch (`features=kept`); the later layers' blocks are broadcast in the first 51 epochs, 0 to 50, and then in
  every second one: 52, 54, and so on. Where that code skips, it uses a worker's own cached block too; here
  the own block is fresh.
- metric `gap`: the left side of the rule of `variation_gap`, by layer, from epoch `warmup` on; where it lies
  tells which bounds would send more or less.
- metric `cache_bytes`: what a worker's cache of the remote blocks of one layer holds, 4 (N - n_i) F bytes,
  which for equal blocks is (P - 1) / P N F 4. Table 6 prints this for two layers of the input's width.
Departures: `features=once` is the default. Algorithm 3 puts layer 0 under the rule of all layers, which is
`refetch`, with flags of its own. `once`, exact since features are static, broadcasts layer 0's blocks in the
first epoch alone and keeps its product A X (compressed features, and features under input dropout: their
rows), so its delta is not needed elsewhere: dL/dW^0 = (A X)^T delta. `kept` broadcasts as `once` does and
computes the product in every epoch.
By default no gradient is clipped: Algorithm 3 clips every delta, but its threshold is not printed. The own
block is always fresh; Algorithm 3, as printed, uses the cached copy of every block whose
flag is STALE, a worker's own among them. A block that is due under SCS-A is broadcast in
that epoch, where in the example of Figure 14(b) a block found too stale in epoch 9 is broadcast in epoch 10.
`flags=worker`: a worker ACTIVE in one layer stays ACTIVE in all later layers of the epoch, where Algorithm 3
sets its flag anew after every layer. In Algorithm 3 the flag that the last layer's output has set in the
epoch before decides on layer 0; here a layer's own block does, after Definition 3, so that `variation_gap`
never broadcasts features again. As for CAGNET, the broadcasts of a layer are posted together, and the
local product runs meanwhile."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, word
from harness.base.errors import InputError
from harness.base.hollow import either, hollow
from harness.comm.work import copied, stream
from harness.core.mixins import SeesOutput
from harness.core.system import Traits, without_effect
from systems.parts.blocks import BlockSystem


@dataclass
class Sancus(SeesOutput, BlockSystem):
    """The knobs.

    staleness   when a block is broadcast again: "epoch_fixed": all blocks in every (`bound` + 1)-th epoch;
                "epoch_adaptive": the same for each block by itself, in turns; "variation_gap": where its rows
                have changed by more than `bound`
    bound       eps_E or eps_A in epochs (0: broadcast every epoch, but for the last blocks under
                `phase=paper`), eps_H under `norm` (0: whenever anything changed)
    phase       of "epoch_adaptive": "stagger": block j is first due at epoch j mod (bound + 1), and every
                block is broadcast when it is due; "paper": from equal versions, each worker's check ends at
                the first block of another that is due
    norm        how the variation gap measures a change: "relative": Frobenius norm over that of the cached
                block; "max": largest entry; "fro": Frobenius norm; "mean": mean of the entries' sizes
    flags       "layer": one flag per layer and block; "worker": one per block
    features    "once": layer 0's blocks are broadcast in the first epoch only, and its product is kept;
                "kept": as "once", but its product is computed in every epoch; "refetch": layer 0 is broadcast
                by the rule of the other layers
    clip        th: each worker scales its block of every layer's delta down to the L2 norm that `clip_scale`
                makes of th; inf: never
    clip_scale  how th follows the number P of workers: "sqrt": th sqrt(P); "inverse": th / sqrt(P)
    warmup      epochs at the start in which all blocks of the layers under the rule are broadcast
    """

    staleness: str = word("epoch_fixed", "epoch_adaptive", "variation_gap")
    bound: float = number(1.0, 0, math.inf)
    phase: str = word("stagger", "paper")
    norm: str = word("relative", "max", "fro", "mean")
    flags: str = word("layer", "worker")
    features: str = word("once", "kept", "refetch")
    clip: float = number(math.inf, 0, math.inf, above=True)
    clip_scale: str = word("sqrt", "inverse")
    warmup: int = number(1, 1, ROUNDS)

    exact: ClassVar = {"staleness": "epoch_adaptive", "bound": 0}

    def __post_init__(self):
        if self.staleness != "variation_gap" and self.bound % 1 != 0:  # of infinity too
            raise InputError(
                f"bound={self.bound} counts epochs under staleness={self.staleness}: give a whole number"
            )

    def traits(self):
        said = []
        if self.staleness != "variation_gap":
            why = f"at system.staleness={self.staleness} the versions say what is broadcast"
            said += without_effect(self, ["norm", "flags"], why)
        if self.staleness != "epoch_adaptive":
            why = f"at system.staleness={self.staleness} no block waits for its turn"
            said += without_effect(self, ["phase"], why)
        turns = self.staleness == "epoch_adaptive" and self.phase == "stagger"
        if self.bound == 0 and (turns or self.staleness == "epoch_fixed"):
            why = "at system.bound=0 every block is broadcast in every epoch"
            said += without_effect(self, ["warmup"], why)
        if math.isinf(self.clip):
            said += without_effect(self, ["clip_scale"], "at system.clip=inf no gradient is clipped")
        return Traits(ineffective=said)

    def repeats(self, epochs):
        if self.staleness == "variation_gap":
            return self.warmup, 1
        bound = int(self.bound)
        return self.warmup + bound * (self.phase == "paper"), bound + 1  # there turns settle first

    def setup(self, context):
        super().setup(context)
        self.epoch = 0
        layers = range(1 if self.features == "once" else 0, self.num_layers)
        # State, by layer: Ht_j of every remote block; and what the rule compares with, Ht_i of the own block
        # under `variation_gap` and Ver(j) of every block under the epoch rules.
        self.cache = {l: self.empty_blocks(self.widths[l]) for l in layers}
        by_gap = self.staleness == "variation_gap"
        self.own: dict[int, torch.Tensor | None] = dict.fromkeys(layers) if by_gap else {}
        self.version = {} if by_gap else {l: [self.initial_version(j) for j in self.everyone] for l in layers}

    def initial_version(self, j: int) -> int:
        """Ver(j) before epoch 0: block j is due in epoch 0, or in its turn at epoch j mod (bound + 1)."""
        period = int(self.bound) + 1
        staggered = self.staleness == "epoch_adaptive" and self.phase == "stagger"
        return (j % period if staggered else 0) - period

    def before_epoch(self, epoch):
        self.epoch, self.worker_active = epoch, False

    # -- forward pass, lines 3-16 of Algorithm 3 --

    def halo(self, layer, h):
        active = self.stale_check(layer, h.detach())
        self.recorder.metric("active", self.comm.rank in active, layer)
        self.recorder.metric("cache_bytes", sum(block.nbytes for block in self.cache[layer]), layer)
        if self.comm.rank in active and layer in self.own:
            self.own[layer] = h.detach().clone()
            self.recorder.work(copied(h))
        return self.broadcast(layer, "forward", h, self.cache[layer], active)

    def stale_check(self, layer: int, h: torch.Tensor) -> list[int]:
        """STALE(): the workers that are ACTIVE now, in rank order. Algorithms 4, 5 and 6."""
        if layer == 0 and self.features == "kept":
            return self.everyone if self.epoch == 0 else []
        if self.staleness == "variation_gap":
            mine = self.epoch < self.warmup
            if not mine:
                gap = self.gap(layer, h)
                self.recorder.metric("gap", gap, layer)
                mine = not gap <= self.bound  # a gap that is not a number is within no bound
            if self.flags == "worker":
                mine = self.worker_active = mine or self.worker_active
            flags = self.comm.all_gather_flag(mine, layer)
            return [j for j, active in enumerate(flags) if active]
        return self.due(self.version[layer], self.epoch)

    def due(self, version: list[int], epoch: int) -> list[int]:
        """The blocks that the epoch rules broadcast in an epoch; moves the versions of those due to it."""
        stale = [j for j in range(len(version)) if epoch - version[j] > self.bound]
        if self.staleness == "epoch_adaptive" and self.phase == "paper" and epoch >= self.warmup:
            # One reading of "EndProcedure": every P(i) stops at the first block of another that is too stale.
            stale = sorted({j for i in range(len(version)) for j in [j for j in stale if j != i][:1]})
        for j in stale:
            version[j] = epoch
        return list(range(len(version))) if epoch < self.warmup else stale

    def gap(self, layer: int, h: torch.Tensor) -> float:
        """||H_i - Ht_i|| under the chosen norm; 0 for a block without rows."""
        cached = self.own[layer]
        assert cached is not None, "every block is broadcast in epoch 0"
        if not len(h):
            return 0.0
        # The difference is written and read again, and for "max" and "mean" its absolute values too;
        # "relative" reads the copy once more.
        reads, writes = {"fro": (3, 1), "relative": (4, 1)}.get(self.norm, (4, 2))
        self.recorder.work(stream(len(h), h.shape[1], h.element_size(), reads, writes))
        if hollow(h):
            return math.inf if either() else 0.0
        if self.norm in ("max", "mean"):
            entries = (h - cached).abs()
            return float(entries.max() if self.norm == "max" else entries.mean())
        difference = float(torch.linalg.vector_norm(h - cached))
        if self.norm == "fro":
            return difference
        size = float(torch.linalg.vector_norm(cached))
        return difference / size if size else difference * math.inf if difference else 0.0

    # -- backward pass, lines 17-22 --

    def output(self, layer, z):
        if math.isinf(self.clip):
            return z
        scale = math.sqrt(self.comm.size)
        return _GradientClip.apply(z, self.clip * scale if self.clip_scale == "sqrt" else self.clip / scale)

    # -- the rest --

    def state_dict(self):
        return {"cache": self.cache, "own": self.own, "version": self.version}

    def load_state_dict(self, state):
        self.cache, self.own, self.version = state["cache"], state["own"], state["version"]


class _GradientClip(torch.autograd.Function):
    """The identity; backwards, delta scaled down to the threshold where its L2 norm exceeds it."""

    @staticmethod
    def forward(ctx, z, threshold):
        ctx.threshold = threshold
        return z.view_as(z)

    @staticmethod
    def backward(ctx, delta):
        norm = torch.linalg.vector_norm(delta)
        return (delta * (ctx.threshold / norm) if norm > ctx.threshold else delta), None
