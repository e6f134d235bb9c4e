"""Which rows of others a worker computes, where hidden rows travel as messages (`systems.parts.messages`):
what sends least within a budget of work.

Work is counted in operations per epoch, forward and backward, of the products of the layers. Layer l gives
n_l rows over e_l edges, self-loops among them:

    6 n_l f_l f_{l+1} + 4 e_l min(f_l, f_{l+1})     l >= 1
    4 n_0 f_0 f_1                                   l = 0, where A X is kept
    4 (z + e_0) f_1                                 l = 0, of sparse features, of which z values are not
                                                    0: where z + e_0 < n_0 f_0 / 2, as on the CPU

The work of making messages, and of aggregating them, is not counted. A budget is a share of the work of the
choice that computes no rows of others.

At a price in bytes per operation the best choice of one worker is a minimum cut, of all layers together. A
node says that something is here; an arc a -> b of capacity c says that a without b costs c bytes:

    x(u, l)      another's row u of H[l], computed here        x(u, l) -> sink: its operations, at the price
    a(u, l)      that row, for layer l                         a(u, l) -> x(u, l): a row travels
    s(v, l, j)   all rows of worker j that v needs in layer l  x(v, l+1) -> s(v, l, j): a partial sum travels

s needs the a of each of its rows, and x(u, l+1) needs x(u, l), at any price. The x of an own row is the
source. Only the capacities of x -> sink depend on the price: as it rises, the least minimum cut loses rows
and gains none, and the messages take no fewer bytes. No choice within a budget sends less than (the cut) -
price * budget. In this bound the work of a row is what it takes by itself.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from harness.comm.comm import Comm
from harness.core.features import filled_by_row
from harness.data.partition.shard import Csr
from systems.parts.cover import least_cover, rows_alone
from systems.parts.extension import Around, Extension

SOURCE, SINK, ROWS = 0, 1, 2  # nodes of a network: these two, and from 2 on the rows that may be computed
NEVER, UNIT = 2**30, 2**20  # capacities: of an arc that must not be cut, and roughly of the dearest message
OCTAVES, STEPS = 24, 128  # of prices, from the highest down
ROUNDED = 1 + 1e-14  # of a share that is exactly what a choice takes
BUDGETS = [2.0 ** (k / 2) for k in range(-8, 9)]  # shares of a worker's own work that cuts are made for
SPREAD = 1 / 8  # prices of equal rows differ by up to this share, so that a price takes few of them at a time

Choose = Callable[[int, np.ndarray, np.ndarray], None]


@dataclass
class Sent:
    """What travels in an epoch.

    widths   [L] values of a message of each layer
    passes   [L] in which it travels in an epoch: 2, 1 where no gradient comes back, 0 where it does not
    kept     bytes of the features of a row that is computed here
    code     bits per value of a message, and whether each has a scale of its own
    sums     whether partial sums may be sent
    """

    widths: list[int]
    passes: list[int]
    kept: int
    code: tuple[int, bool]
    sums: bool

    def each(self, layer: int) -> int:
        """Bytes of a message of a layer in all passes, without what coding a column rounds up and scales."""
        (bits, by_row), width = self.code, self.widths[layer]
        if by_row:
            return self.passes[layer] * (-(-width * bits // 8) + 2)
        return self.passes[layer] * width * bits // 8

    def of(self, layer: int, counts: np.ndarray) -> int:
        """Bytes of these numbers of messages [P] of a layer, coded (`CodedMessages`)."""
        bits, by_row = self.code
        if by_row or bits == 32:
            return self.each(layer) * int(counts.sum())
        columns = self.passes[layer] * self.widths[layer]
        return columns * int((-(-counts[counts > 0] * bits // 8) + 2).sum())


def operations(of: Around, widths: list[int], filled: np.ndarray) -> np.ndarray:
    """[L + 1, u] operations per epoch that each row of each H[l] takes by itself, with sparse features if
    that takes fewer; 0 for the rows of H[0]. filled [u]: how many features of each vertex are not 0."""
    edges = np.diff(of.edges.indptr).astype(np.int64) + 1
    first = 4 * widths[1] * np.minimum(filled + edges, widths[0])
    later = [6 * f_in * f_out + 4 * edges * min(f_in, f_out) for f_in, f_out in zip(widths[1:], widths[2:])]
    return np.stack([np.zeros_like(edges), first, *later])


class Cuts:
    """The choices of one worker that are best at a price of work. Own rows are those of `top`, whatever the
    other workers choose.

    top    [own] the last H[l] that each own row is computed of, -1 for none
    ops    [L + 1, u] as `operations` gives them
    """

    def __init__(self, of: Around, top: np.ndarray, ops: np.ndarray, sent: Sent):
        self.vertices, layers = of.edges.num_rows, len(ops) - 1
        row = np.repeat(np.arange(of.edges.num_rows), np.diff(of.edges.indptr))
        remote = of.edges.indices >= of.own
        target, source = row[remote], of.edges.indices[remote]
        # depth [u]: the last H[l] that a row may be needed of; for remote rows from the last layer back.
        depth = np.concatenate([top, np.zeros(len(of.owners), np.int64)])
        for layer in reversed(range(1, layers)):
            reached = source[depth[target] > layer]
            depth[reached] = np.maximum(depth[reached], layer)
        # Nodes x(u, l): the remote rows that may be computed. number: the node of each row of each H[l].
        others = [of.own + np.flatnonzero(depth[of.own :] >= layer) for layer in range(layers)]
        self.rows = np.concatenate([np.zeros(0, np.int64), *others[1:]])
        self.layers = np.repeat(np.arange(1, layers), [len(each) for each in others[1:]])
        self.ops, self.count = ops[self.layers, self.rows], ROWS + len(self.rows)
        number = np.full((layers + 1, len(depth)), -1)
        number[self.layers, self.rows] = ROWS + np.arange(len(self.rows))
        number[:, : of.own] = SOURCE

        costs = [sent.each(layer) for layer in range(layers)]
        self.unit = max(1, UNIT // max(*costs, 1))
        self.arcs: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for layer in range(0 if sent.passes[0] else 1, layers):
            # Nodes a(u, layer), one per remote row that the layer may aggregate.
            used = depth[target] > layer
            v, u = target[used], source[used]
            vertices, a = np.unique(u, return_inverse=True)
            a, here = a + self.count, self.count + np.arange(len(vertices))
            self.count += len(vertices)
            if sent.sums:  # nodes s(v, layer, j), one per row v and owner j of its remote sources
                groups, s = np.unique(v * np.int64(2**20) + of.owners[u - of.own], return_inverse=True)
                s, sums = s + self.count, self.count + np.arange(len(groups))
                self.count += len(groups)
                self._arcs(number[layer + 1, groups // 2**20], sums, costs[layer] * self.unit)
                self._arcs(s, a, NEVER)
            else:  # x(v, layer + 1) needs each a itself
                both = np.unique(number[layer + 1, v] * np.int64(2**32) + a)
                self._arcs(both // 2**32, both % 2**32, NEVER)
            # A row that is not computed here travels; features travel, unless they are kept for x(u, 1).
            computed = number[max(layer, 1), vertices]
            self._arcs(here, np.where(computed < 0, SINK, computed), costs[layer] * self.unit)
            if layer:
                deeper = np.flatnonzero((number[layer + 1] >= ROWS) & (number[layer] >= ROWS))
                self._arcs(number[layer + 1, deeper], number[layer, deeper], NEVER)
        self.kept = np.where(self.layers == 1, sent.kept * self.unit, 0)
        mixed = np.asarray(of.shard.inner, np.uint64)[self.rows] * np.uint64(0x9E3779B1) % np.uint64(2**32)
        self.worth = self.ops * (1 + SPREAD * mixed / 2**32)  # of a row, at price 1
        # At this price a row's operations cost as much as messages of two layers: none is computed.
        self.highest = 2 * UNIT / self.ops.min() if len(self.ops) else 0.0
        self.cuts: dict[int, tuple[np.ndarray, int]] = {}

    def _arcs(self, tails: np.ndarray, heads: np.ndarray, capacity: int) -> None:
        self.arcs.append((tails, heads, np.full(len(tails), min(capacity, NEVER))))

    def price(self, step: int) -> float:
        """The price of a step, 0 at step 0, `STEPS` steps per octave, up to the highest price; exact, so the
        same on every machine."""
        octave, part = divmod(step, STEPS)
        return self.highest * 2.0 ** (octave - OCTAVES) * (1 + part / STEPS) if step else 0.0

    def cut(self, step: int) -> tuple[np.ndarray, int]:
        """Which of `rows` are computed at a price, and the capacity of the cut."""
        if step not in self.cuts:
            priced = np.floor(self.price(step) * self.worth) + self.kept
            ends = ROWS + np.arange(len(self.rows)), np.full(len(self.rows), SINK), np.minimum(priced, NEVER)
            tails, heads, capacity = (np.concatenate(each) for each in zip(*self.arcs, ends))
            here, size = _source_side(tails, heads, capacity.astype(np.int32), self.count)
            self.cuts[step] = here[ROWS : ROWS + len(self.rows)], size
        return self.cuts[step]

    def within(self, most: float) -> np.ndarray:
        """[u] the last H[l] that each remote row is computed of, 0 for none, at the lowest price at which the
        computed rows take at most `most` operations together."""
        chosen = np.zeros(self.vertices, np.int64)
        if len(self.rows):
            steps = range(OCTAVES * STEPS)
            step = bisect_left(steps, True, key=lambda k: self.ops[self.cut(k)[0]].sum() <= most)
            taken = self.cut(step)[0]
            np.maximum.at(chosen, self.rows[taken], self.layers[taken])
        return chosen

    def bound(self, most: float) -> float:
        """Bytes that every choice of at most `most` operations sends at least: the best bound that the cuts
        made so far give; without what coding a column rounds up and scales."""
        return (
            max(
                (size - self.price(step) * (1 + SPREAD) * most for step, (_, size) in self.cuts.items()),
                default=0.0,
            )
            / self.unit
        )


def _source_side(
    tails: np.ndarray, heads: np.ndarray, capacity: np.ndarray, count: int
) -> tuple[np.ndarray, int]:
    """The smallest source side of a minimum cut [count] bool, and the capacity of the cut."""
    from scipy import sparse  # most runs need no plan, and start without it
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    network = sparse.csr_matrix((capacity, (tails, heads)), shape=(count, count))
    flow = maximum_flow(network, SOURCE, SINK)
    left = network - flow.flow
    left.eliminate_zeros()
    here = np.zeros(count, bool)
    here[breadth_first_order(left, SOURCE, return_predecessors=False)] = True
    return here, int(flow.flow_value)


class Plan:
    """One choice of rows, made by all workers together.

    extension   the rows
    work        this worker's operations per epoch
    """

    def __init__(self, of: Around, widths: list[int], filled: np.ndarray, extension: Extension):
        self.of, self.extension, found = of, extension, extension.rows
        self.taken = [found.order[:count] for count in found.counts]
        edges = np.diff(of.edges.indptr)
        self.work = 0
        for layer, (f_in, f_out) in enumerate(zip(widths, widths[1:])):
            n, e = len(self.taken[layer + 1]), int(edges[self.taken[layer + 1]].sum())
            if layer:
                self.work += 6 * n * f_in * f_out + 4 * (e + n) * min(f_in, f_out)
                continue
            z = sum(int(filled[rows].sum()) for rows in (self.taken[0], found.halos[0]))
            self.work += 4 * f_out * (z + e + n if 2 * (z + e) < n * f_in else n * f_in)

    def sizes(self, sent: Sent) -> tuple[int, int]:
        """Bytes per epoch of the messages that this worker receives and of their gradients that it sends
        back; and the same without what coding a column rounds up and scales."""
        from scipy import sparse  # most runs need no plan, and start without it

        of, found = self.of, self.extension.rows
        size = plain = sent.kept * self.extension.others[0]
        ones = np.ones(of.edges.num_entries, np.int8)
        edges = sparse.csr_matrix((ones, of.edges.indices, of.edges.indptr), shape=of.edges.shape)
        for layer in range(0 if sent.passes[0] else 1, len(found.halos)):
            block = edges[self.taken[layer + 1]][:, found.halos[layer]]
            block.sort_indices()
            counts = found.plans[layer].receive_counts
            given = Csr(block.indptr, block.indices, block.shape[1])
            cover = (least_cover if sent.sums else rows_alone)(given, counts)
            owners = np.repeat(np.arange(len(counts)), counts)[cover.rows]
            each = np.bincount(np.concatenate([owners, cover.owner]), minlength=len(counts))
            size += sent.of(layer, each)
            plain += sent.each(layer) * int(each.sum())
        return size, plain

    def costs(self, ops: np.ndarray) -> int:
        """Operations of the rows of others, each by itself."""
        return sum(int(each[rows[rows >= self.of.own]].sum()) for each, rows in zip(ops, self.taken))


def of_depths(chosen: np.ndarray) -> Choose:
    """Compute what `Cuts.within` chose, where it is wanted."""

    def choose(layer: int, wanted: np.ndarray, depth: np.ndarray) -> None:
        depth[wanted[chosen[wanted] >= layer]] = layer

    return choose


def none(layer: int, wanted: np.ndarray, depth: np.ndarray) -> None:
    """Compute nothing for others."""


def least(
    of: Around,
    top: np.ndarray,
    widths: list[int],
    needed: bool,
    comm: Comm,
    sent: Sent,
    share: float,
    more: Sequence[Choose],
) -> tuple[Extension, float, float | None]:
    """The choice that sends least, of those whose further work is at most `share` of every worker's own.
    Compared are: none; each of `more`; and for each of `BUDGETS` up to the share, every worker's largest cut
    whose work fits it when all workers take cuts for the same budget. A larger share compares more choices,
    so more work never sends more. Collective.

    Returns its extension; the share that this worker uses, negative where it computes less; and a bound:
    every choice of rows that take as many operations, each row by itself, receives at least this share of
    the bytes that this worker receives; None where what one worker chooses decides what others receive.
    """
    layers, shard = len(widths) - 1, of.shard
    bounds = np.concatenate([[0], np.cumsum(shard.sizes)])
    names = np.concatenate([bounds[shard.rank] + np.arange(of.own), bounds[of.owners] + of.rows])
    filled = comm.gathered(filled_by_row(shard.features))[names]
    ops = operations(of, widths, filled)
    cuts = Cuts(of, top, ops, sent)
    own = sum(int(ops[layer, : of.own][top >= layer].sum()) for layer in range(1, layers + 1))

    def made(choose: Choose) -> Plan:
        return Plan(of, widths, filled, Extension(of, layers, needed, comm, choose))

    # The work of each budget's cuts, and for each budget the largest cut that in fact fits it.
    alone, best, fewest, plain = made(none), None, 0, 0
    chosen = [none, *(of_depths(cuts.within(each * own)) for each in BUDGETS)]
    work = np.array([made(choose).work for choose in chosen])
    each_its_own = [
        chosen[np.flatnonzero(work <= (1 + each) * alone.work).max()] for each in BUDGETS if each <= share
    ]
    # Of all choices that fit on every worker, the one with the fewest bytes over all workers.
    for plan in chain([alone], map(made, [*each_its_own, *more])):
        if comm.gathered(np.array([plan.work <= (1 + share) * alone.work * ROUNDED])).all():
            mine = plan.sizes(sent)
            size = int(comm.gathered(np.array([mine[0]])).sum())
            if best is None or size < fewest:
                best, fewest, plain = plan, size, mine[1]
    assert best is not None
    bound = None
    if not needed or (layers == 2 and not sent.passes[0]):
        bound = max(float(cuts.bound(best.costs(ops))), 0.0) / plain if plain else 1.0
    return best.extension, best.work / max(alone.work, 1) - 1, bound
