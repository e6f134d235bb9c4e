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
from harness.core.combine import Exact, Quantised
from harness.core.system import check_features
from harness.core.traits import Refuses, Traits
from systems.parts.message_system import AS_THEY_ARE, MessageSystem
from systems.parts.messages import CodedMessages


@dataclass
class Lean(MessageSystem):
    """messages  "cover": the fewest rows and partial sums; "rows": rows alone
    narrow    send the narrower of H and H W, and in the last layer C - 1 of C columns; false: H
    bits      per value of a message: 4, 8, or 32: as they are
    features  "once": layer 0's rows are fetched one time, and kept; "refetch": in every epoch
    """

    messages: str = "cover"
    narrow: bool = True
    bits: int = one_of(8, 4, 8, AS_THEY_ARE)
    features: str = "once"

    exact: ClassVar = {"bits": AS_THEY_ARE}
    refuses: ClassVar = Refuses(needed_rows="", attention="")

    def __post_init__(self):
        choice("messages", self.messages, ("rows", "cover"))
        check_features(self.features)

    def traits(self):
        combine = Exact() if self.bits == AS_THEY_ARE else Quantised()
        return Traits(overlaps=True, rows="needed", features_wire="auto", combine=combine)

    def coded(self, layer, send, receive):
        return CodedMessages(self.comm, layer, send, receive, self.bits, self.seed)
