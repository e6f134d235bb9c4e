"""Lean: a system of this project, built of what can be left out exactly and what can be rounded without bias;
nothing is stale.

1. Needed rows (`rows=needed`). delta is 0 outside the training vertices, so layer l needs Z of R_{l+1} alone,
   R_L = train, R_l = R_{l+1} and its in-neighbours. Nothing else is computed or exchanged. Exact.
2. Least cover (`messages=cover`). A needed cut edge u -> v is served by u's row, or by v's partial sum over
   one sender; the fewest messages between two workers are a least vertex cover of these edges. Exact.
3. Narrow side (`narrow`). Rows and partial sums are linear in H, so H W travels where it is narrower than H.
   In the last layer of a softmax classifier C - 1 of C columns are enough: a shift common to a row of logits
   changes nothing forwards, and the rows of delta sum to 0 backwards. Exact.
4. Coded messages (`bits`, `scale`). Stochastic rounding to 8 bits, one scale of 2 bytes per column of what
   goes from one worker to another, or per row.
5. Coded weights (`combine=quantised`). The weights' gradients travel up to the owners of their rows, and the
   changes of the weights travel down, both at 4 bits (harness/core/combine.py).
6. Layer 0 once, exactly, in sparse rows where these are smaller (`features_wire=auto`).
7. Recomputing (`extra_work`), off by default. A worker computes some rows of other workers itself, from their
   features and in-neighbours, and messages serve the cut edges that are left. Which rows it computes is a
   minimum cut at a price of work, the lowest price that fits a budget (systems/parts/recompute.py). Exact.

Sender j multiplies its rows by G_ij, which gives its messages to i, and i multiplies these by S_ij;
A_ih = sum_j S_ij G_ij, and Q is the rounding of point 4:

    forward    Y = H W or H;   M_ij = Q(G_ij Y_j);   Z_i = A_ii Y_i + sum_j S_ij M_ij     (times W for Y = H)
    backward   N_ij = Q(S_ij^T delta_i);   dY_j = A_jj^T delta_j + sum_i G_ij^T N_ij

Notation: k_ij messages from j to i in a layer; w the width sent: the narrower of f_in and f_out, in the last
layer of a softmax classifier the narrower of f_in and C - 1; P workers; a matrix of weights [r, c]; n other
weights.

Bytes per epoch over all workers:
    messages   2 sum_ij w (ceil(k_ij bits / 8) + 2) in each layer l >= 1, no message no byte, or at scale=row
               2 sum_ij k_ij (ceil(w bits / 8) + 2); 8 w k_ij at bits=32; under `features=refetch` also for
               l = 0, half of that where H travels, and 4 f_0 for each other's vertex of which rows are
               computed
    weights    sum of 2 (P - 1) r (ceil(c / 2) + 2) over matrices, and 8 (P - 1) n

Decisions
- a partial sum adds up only the edges that no row serves.
- scale=row is for 4 bits: a scale per column is the largest of thousands of values, and rounds most of them
  to 0 there.
- at bits=32, the exact knob, weights are not coded either unless `combine` is given.
- attention needs rows: no partial sums and no narrow side there (model=gat), and rows travel before dropout.
- preset `vanilla/cover` is this with nothing rounded: exact training that sends the fewest messages.
- extra_work is a share of the operations that a worker's products take per epoch at extra_work=0, by the
  closed forms of systems/parts/recompute.py: 1 is as much again. By these no worker exceeds it. Metrics:
  `extra_work`, the share used; `replicated` by layer, the rows computed for others; `structure_bytes`, the
  bytes of asking for edges; `bound`: any choice of rows that takes as many operations receives at least this
  share of the bytes (where workers do not depend on each other: 2 layers and features=once, or rows=all).
- a larger extra_work never sends more bytes. Under features=once no choice of `replicate` that fits the
  budget sends fewer, of mode=cache and hybrid with a `row` of 1, 2, 4 .. 256, other knobs at their defaults:
  these choices are compared with cuts for budgets of 1/16, 1/11, 1/8 .. up to extra_work, and of those that
  fit the one that sends least is taken.
- a worker to and from which a layer sends nothing takes the cheaper of A (X W) and (A X) W there.
- below 32 bits, copies of a row that two workers compute may differ by the rounding of the messages that
  arrived in lower layers.
- where attention weighs neighbours (model=gat) extra_work is 0: the closed forms do not hold there.
- dropout by vertex, as everywhere: the sender of a message drops, with the mask of the vertex.
Departures: none; the combination is this project's and its parts are not. An exchange by a minimum vertex
cover of rows and partial sums, with coded boundary rows, was published before: Zhuang et al., "Scaling
Large-scale GNN Training to Thousands of Processors on CPU-based Supercomputers" (SuperGNN / SuperGCN, arXiv
2411.16025); so was aggregation before the exchange (ABC, arXiv 2212.05410). Here the cover is of needed rows
alone, messages are on the narrower side with one scale per column, and the steps of the weights are coded.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from harness.base.bounds import number, one_of, word
from harness.core.combine import Exact, Quantised
from harness.core.mixins import ComputesOthers
from harness.core.needed import needed_rows
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.extension import Extension, around
from systems.parts.messages import AS_THEY_ARE, CodedMessages, MessageSystem
from systems.parts.recompute import Sent, least
from systems.replicate import Chooser, Replicate


@dataclass
class Lean(ComputesOthers, MessageSystem):
    """messages  "cover": the fewest rows and partial sums; "rows": rows alone
    narrow    send the narrower of H and H W, and in the last layer C - 1 of C columns; false: H
    bits      bits per value of a message: 4 or 8; 32: not coded
    scale     what has a scale of its own: each "column" of what goes to one worker, or each "row"
    features  "once": layer 0's rows are fetched one time, and kept; "refetch": in every epoch
    extra_work   most operations on rows of others, as a share of those on a worker's own rows; 0: none
    """

    messages: str = word("cover", "rows")
    narrow: bool = True
    bits: int = one_of(8, 4, 8, AS_THEY_ARE)
    scale: str = word(*CodedMessages.CODES)
    features: str = word("once", "refetch")
    extra_work: float = number(0.0, 0, 1000)

    exact: ClassVar = {"bits": AS_THEY_ARE}
    refuses: ClassVar = Refuses(needed_rows="", attention="", labels="")

    def supports(self, run):
        model, why = f"model={run.model}", ""
        if not run.matrix:
            why = f"lean knows what a row of {model} costs by its products with a propagation matrix alone"
        elif not run.fewer_rows:
            why = f"the layers of {model} give as many rows as they take"
        elif run.labels:
            why = "lean knows no labels of vertices whose rows it computes for others"
        if why and self.extra_work:
            return f"system.extra_work={self.extra_work} cannot be: {why}; give system.extra_work=0"
        return super().supports(run)

    def traits(self):
        combine = Exact() if self.bits == AS_THEY_ARE else Quantised()
        idle = ["scale"] if self.bits == AS_THEY_ARE else []
        return Traits(
            overlaps=True,
            sparse_features=not self.extra_work,  # at 0, features are fetched as in every other system
            rows="needed",
            features_wire="auto",
            combine=combine,
            ineffective=without_effect(self, idle, f"at system.bits={AS_THEY_ARE} messages are not coded"),
        )

    def rows_of_layers(self, shard, widths, needed, comm):
        layers = len(widths) - 1
        self.extension: Extension | None = None
        if not self.extra_work or layers == 1 or comm.size == 1:
            return None
        # The graph around the own vertices, and by own row the last H[l] that must be computed of it.
        known = around(shard, comm, layers - 1)
        top = np.full(shard.num_inner, -1 if needed else layers)
        if needed:
            rows = needed_rows(shard, layers, comm)
            for layer, count in enumerate(rows.counts):
                top[rows.order[:count]] = layer
        # What a message of each layer costs in an epoch.
        sides = [self.narrowed(shard, widths, layer) for layer in range(layers)]
        # In layer 0 nothing comes back for X, which has no gradient, but the gradient of X W does.
        sent = [widths[layer + narrow] - spared for layer, (narrow, spared) in enumerate(sides)]
        passes = [2 if layer or narrow else 1 for layer, (narrow, _) in enumerate(sides)]
        kept = 4 * widths[0]
        if self.features == "once":
            passes[0] = kept = 0
        code = self.bits, self.scale == "row" and self.bits != AS_THEY_ARE
        travels = Sent(sent, passes, kept, code, self.messages == "cover")
        # The cheapest choice within the budget, some choices of `replicate` among those compared.
        costs = [Replicate(mode="cache"), *(Replicate(row=2.0**k) for k in range(9))]
        others = [Chooser(each, known, widths) for each in costs]
        self.extension, self.used, self.bound = least(
            known, top, widths, needed, comm, travels, self.extra_work, others
        )
        return known.shard, self.extension.rows

    def before_epoch(self, epoch):
        super().before_epoch(epoch)
        if self.extension is None:
            return
        self.extension.record(self.recorder, epoch)
        self.recorder.metric("extra_work", self.used)
        if self.bound is not None:
            self.recorder.metric("bound", self.bound)
        if self.features == "refetch":
            self.extension.fill(self.x, lambda plan, x: self.comm.exchange(plan, x, 0, "features").wait())

    def setup(self, context):
        super().setup(context)
        if self.extension is not None and self.features == "refetch":
            features = context.adjacency.at(0).features
            assert features is not None
            self.x = features.x

    def input_halo(self, x):
        if self.extension is not None:
            self.extension.fill(x, self._features_of)
        return super().input_halo(x)

    def coded(self, layer, send, receive):
        return CodedMessages(self.comm, layer, send, receive, self.bits, self.seed, self.scale)
