"""Lean: a system of this project, built of what can be left out exactly and what can be rounded without bias;
nothing is stale.

1. Needed rows (`rows=needed`). delta is 0 outside the training vertices, so layer l needs Z of R_{l+1} alone,
   R_L = train, R_l = R_{l+1} and its in-neighbours. Nothing else is computed or exchanged. Exact.
2. Least cover (`messages=cover`). A needed cut edge u -> v is served by u's row, or by v's partial sum over
   one sender; the fewest messages of a pair of workers are a least vertex cover of these edges. Exact.
3. Narrow side (`narrow`). Both are linear, so H W travels where it is narrower than H. In the last layer of a
   softmax classifier C - 1 of C columns do: a shift common to a row of logits changes nothing forwards, and
   the rows of delta sum to 0 backwards. Exact.
4. Coded messages (`bits`). Stochastic rounding to 8 bits, one scale of 2 bytes per column of what goes from
   one worker to another.
5. Coded weights (`combine=quantised`). Gradients travel up to owners of rows, steps down, at 4 bits
   (harness/core/combine.py).
6. Layer 0 once, exactly, in sparse rows where these are smaller (`features_wire=auto`).

With G_ij what sender j makes of its rows for i, S_ij what i makes of that, A_ih = sum_j S_ij G_ij:

    forward    Y = H W or H;   M_ij = Q(G_ij Y_j);   Z_i = A_ii Y_i + sum_j S_ij M_ij     (times W for Y = H)
    backward   N_ij = Q(S_ij^T delta_i);   dY_j = A_jj^T delta_j + sum_i G_ij^T N_ij

Notation: k_ij messages from j to i in a layer; w the width sent: the narrower of f_in and f_out, in the last
layer of a softmax classifier the narrower of f_in and C - 1; P workers; a matrix of weights [r, c]; n other
weights.

Bytes per epoch over all workers:
    messages   2 sum_ij w (ceil(k_ij bits / 8) + 2) in each layer l >= 1, no message no byte; 8 w k_ij at
               bits=32; half of that for l = 0 under `features=refetch`
    weights    sum of 2 (P - 1) r (ceil(c / 2) + 2) over matrices, and 8 (P - 1) n

Decisions
- a sum adds up only the edges that no row serves.
- at bits=32 weights are not coded either where `combine` is not given: the exact knob.
- attention needs rows: no partial sums and no narrow side there (model=gat), and rows travel before dropout.
- preset `vanilla/cover` is this with nothing rounded: exact training that sends the fewest messages.
- dropout by vertex, as everywhere: the sender of a message drops, with the mask of the vertex.
Departures: none; the combination is this project's and its parts are not. An exchange by a minimum vertex
cover of rows and partial sums, with coded boundary rows, was published before: Zhuang et al., "Scaling
Large-scale GNN Training to Thousands of Processors on CPU-based Supercomputers" (SuperGNN / SuperGCN, arXiv
2411.16025); so was aggregation before the exchange (ABC, arXiv 2212.05410). Here the cover is of needed rows
alone, messages are on the narrower side with one scale per column, and the steps of the weights are coded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.bounds import one_of
from harness.base.errors import choice
from harness.core.adjacency import Propagation
from harness.core.combine import Exact, Quantised
from harness.core.counting import times
from harness.core.features import rows_times
from harness.core.needed import PerLayer
from harness.core.system import System, check_features
from harness.core.traits import Refuses, Traits
from harness.data.partition.shard import Shard
from systems.parts.messages import CodedHalo, CodedMessages, MessageAdjacency, Messages, served

EXACT_BITS = 32


@dataclass
class Lean(System[Shard, PerLayer]):
    """messages  "cover": the fewest rows and partial sums; "rows": rows alone
    narrow    send the narrower of H and H W, and in the last layer C - 1 of C columns; false: H
    bits      per value of a message: 4, 8, or 32: as they are
    features  "once": layer 0's rows are fetched one time, and kept; "refetch": in every epoch
    """

    messages: str = "cover"
    narrow: bool = True
    bits: int = one_of(8, 4, 8, EXACT_BITS)
    features: str = "once"

    exact: ClassVar = {"bits": EXACT_BITS}
    refuses: ClassVar = Refuses(needed_rows="", attention="")

    def __post_init__(self):
        choice("messages", self.messages, ("rows", "cover"))
        check_features(self.features)

    def supports(self, run):
        if run.wire != "float32" and self.bits != EXACT_BITS:
            return f"wire={run.wire} cannot be: lean codes what it sends; give wire=float32 or system.bits=32"
        return super().supports(run)

    def traits(self):
        combine = Exact() if self.bits == EXACT_BITS else Quantised()
        return Traits(overlaps=True, rows="needed", features_wire="auto", combine=combine)

    def setup(self, context):
        super().setup(context)
        self.epoch = 0
        self.under_way: dict[int, Messages] = {}  # by layer
        if not context.matrix:
            return
        softmax = self.shard.labels.ndim == 1 and self.widths[-1] > 1
        layers: list[Propagation] = [context.adjacency.at(layer) for layer in range(self.num_layers)]
        made: dict[int, MessageAdjacency] = {}  # layers that need the same rows share a plan
        for layer in range(0 if self.features == "refetch" else 1, self.num_layers):
            of = layers[layer]
            if id(of) not in made:
                made[id(of)] = MessageAdjacency(of, self.plans[layer], self.comm, self.messages == "cover")
            f_in, f_out = self.widths[layer : layer + 2]
            spared = int(softmax and layer == self.num_layers - 1)
            layers[layer] = made[id(of)].sending(of, self.narrow and f_out - spared < f_in, spared)
        self.adjacency = PerLayer(layers)

    def before_epoch(self, epoch):
        self.epoch = epoch

    def propagate(self, layer, h, weight, dropout):
        a = self.adjacency.at(layer)
        assert isinstance(a, MessageAdjacency)
        x = dropout.inner(a.inner_rows(h))
        y = rows_times(x, weight, self.recorder, a.fixed) if a.transformed else x
        z = served(y, a, self.messages_of(layer, *a.counts))
        return z if a.transformed else times(z, weight, self.recorder, a.fixed)

    def halo(self, layer, h):
        plan = self.plans[layer]
        if self.bits == EXACT_BITS:
            return self.comm.exchange(plan, h, layer)
        return CodedHalo(self.messages_of(layer, plan.send_counts, plan.receive_counts), plan, h)

    def messages_of(self, layer, send, receive):
        """So many messages to and from each worker, as they are or coded, the same object in every epoch."""
        if layer not in self.under_way:
            given = self.comm, layer, send, receive
            exact = self.bits == EXACT_BITS
            self.under_way[layer] = Messages(*given) if exact else CodedMessages(*given, self.bits, self.seed)
        found = self.under_way[layer]
        if isinstance(found, CodedMessages):
            found.epoch = self.epoch
        return found
