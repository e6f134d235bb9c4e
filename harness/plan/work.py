"""What a worker computes in a step, layer by layer, in closed forms of its loads: the work that a trace of a
GCN counts (`harness.comm.work`). docs/howto/plan.md derives each line.

Other models are taken for it: SAGE's second weight and an attention's scores are left out.
"""

from __future__ import annotations

from typing import NamedTuple

from harness.comm.work import Work, dense, drop, sparse, stream
from harness.core.order import GATHERED, Order
from harness.core.system import AnySystem
from harness.core.traffic import FLOAT
from harness.plan.loads import Loads, sparse_features, transforms_first

MOMENTS = 2  # that Adam keeps of each weight


class LayerWork(NamedTuple):
    """Of a layer: forward before the halo's rows are there, and after; backward before the gradients of halo
    rows leave, and after."""

    ahead: list[Work]
    arrived: list[Work]
    leaving: list[Work]
    back: list[Work]


class Case(NamedTuple):
    """system    whose products are worked out
    dropout   of hidden rows
    on_cpu    whether features with few non-zeros are kept sparse
    values    of all weights
    """

    system: AnySystem
    dropout: float
    on_cpu: bool
    values: int


class Block(NamedTuple):
    """One of a worker's two blocks of the propagation matrix, [rows, columns]; `loops` where the rows are
    those of the columns."""

    rows: int
    columns: int
    entries: int
    loops: bool

    def times(self, width: int) -> list[Work]:
        """Its product with rows of this width; nothing where it has no entries."""
        if not self.entries and not self.loops:
            return []
        added = not self.loops
        return [sparse(self.rows, self.columns, self.entries, width, FLOAT,
                       row=True, column=True, loops=self.loops, accumulate=added)]  # fmt: skip

    def adjoint(self, width: int) -> list[Work]:
        """That of its transpose."""
        if not self.entries and not self.loops:
            return []
        return [sparse(self.columns, self.rows, self.entries, width, FLOAT,
                       row=True, column=True, loops=self.loops)]  # fmt: skip


def layer_work(loads: Loads, layer: int, worker: int, case: Case) -> LayerWork:
    """Of one step. Making messages is left out."""
    of, (f_in, f_out) = loads.layers[layer], loads.widths[layer : layer + 2]
    given, taken, halo = (int(part[worker]) for part in (of.given, of.taken, of.halo))
    inner = Block(given, taken, int(of.inner_entries[worker]), loops=True)
    remote = Block(given, halo, int(of.halo_entries[worker]), loops=False)
    made = LayerWork([], [], [], [])
    if layer == 0 and case.on_cpu and sparse_features(loads, worker):
        _bags(made, loads, worker, inner, remote)
    elif layer == 0 and case.system.features == "once":  # A X is kept
        made.ahead.append(dense(given, f_in, f_out, FLOAT))
        made.leaving.append(dense(f_in, given, f_out, FLOAT))
    else:
        _propagated(made, loads, layer, worker, case, inner, remote)
    # The bias, then the activation or the loss.
    made.arrived.append(stream(given, f_out, FLOAT, 1, 1))
    made.back.append(stream(given, f_out, FLOAT, 1, 0))
    if layer + 1 < len(loads.layers):
        made.arrived.append(stream(given, f_out, FLOAT, 1, 1))
        made.leaving.insert(0, stream(given, f_out, FLOAT, 2, 1))
    else:
        train = int(loads.train[worker])
        made.arrived.append(stream(train, f_out, FLOAT, 3, 2))
        made.leaving.insert(0, stream(train, f_out, FLOAT, 2, 1))
        made.leaving.insert(1, stream(given, f_out, FLOAT, 0, 1))
    return made


def _bags(made: LayerWork, loads: Loads, worker: int, inner: Block, remote: Block) -> None:
    """Layer 0 of features of which few are not 0, kept sparse; halo rows are taken to be as full as own
    ones."""
    f_in, f_out = loads.widths[:2]
    for block, work in ((inner, made.ahead), (remote, made.arrived)):
        full = int(loads.nonzero[worker] * block.columns / max(inner.columns, 1))
        if full:
            work.append(sparse(block.columns, f_in, full, f_out, FLOAT, values=True))
            made.leaving.append(sparse(f_in, block.columns, full, f_out, FLOAT, values=True))
        work.extend(block.times(f_out))
        made.leaving.extend(block.adjoint(f_out))


def _propagated(
    made: LayerWork, loads: Loads, layer: int, worker: int, case: Case, inner: Block, remote: Block
) -> None:
    """A layer that takes rows anew in every step."""
    f_in, f_out = loads.widths[layer : layer + 2]
    passes = case.system.passes[min(layer, 1)]
    first = transforms_first(loads, layer, worker, passes, Order())
    width = f_out if first else f_in
    blocks = (inner, remote) if remote.entries else (inner,)
    dropped = [drop(block.columns, f_in, FLOAT) for block in blocks if layer and case.dropout]
    own, other = inner.columns if first else inner.rows, remote.columns if first and remote.entries else 0
    made.ahead.extend([*dropped[:1], dense(own, f_in, f_out, FLOAT), *inner.times(width)])
    made.arrived.extend([*dropped[1:], *([dense(other, f_in, f_out, FLOAT)] if other else [])])
    made.arrived.extend(remote.times(width))
    if passes == GATHERED:  # deltas arrive, where gradients of halo rows leave otherwise
        made.leaving.extend(inner.times(f_out))
        made.back.extend([*remote.times(f_out), dense(f_in, inner.columns, f_out, FLOAT)])
        made.back.extend([dense(inner.columns, f_out, f_in, FLOAT)] if layer else [])
        made.back.extend(dropped[:1])
        return
    weights = [dense(f_in, rows, f_out, FLOAT) for rows in (other, own) if rows]
    if not layer:  # no gradient of the features
        products = [*inner.adjoint(width), *remote.adjoint(width)] if first else []
        made.leaving.extend([*products, *weights])
        return
    made.leaving.extend([*remote.adjoint(width), *weights[:-1]])
    made.leaving.extend([dense(other, f_out, f_in, FLOAT)] if other else [])
    made.leaving.extend(dropped[1:])
    made.back.extend([*inner.adjoint(width), weights[-1], dense(own, f_out, f_in, FLOAT), *dropped[:1]])


def step_work(case: Case) -> list[Work]:
    """Of the step over all values of the weights: gradients put together for the sum over workers and taken
    apart, and the optimiser with Adam's two moments."""
    return [
        stream(1, case.values, FLOAT, 2, 2),
        stream(1, case.values, FLOAT, 2 + MOMENTS, 1 + MOMENTS),
    ]
