"""Neighbour sampling over an owner-compute edge-cut: vertices relabelled by owner, draws by counter, blocks.

A vertex's *name* is its place in the line of all workers' vertices, worker 0's first: a worker's names are
one range, its owner a search in P + 1 numbers, and its local row a subtraction.

A draw is a hash of (seed, epoch, step, hop, global id of the destination), and with `key=worker` of the
worker that asks too. Without that, whoever expands a vertex in a step and hop, wherever it lies, draws the
same neighbours. They are places in the vertex's list in ascending global ids, chosen uniformly: without
replacement (Floyd's algorithm: k hashes whatever the degree), where vertices with no more neighbours than
asked for take all; or with replacement, where every vertex that has neighbours draws as many as asked for,
and an edge counts as often as it is drawn.
Self-loops are no neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np

from harness.base.splitmix import GOLDEN, mix, mix_int
from harness.comm.comm import Comm
from harness.comm.pulls import Arrays, Pulls, Purpose
from harness.core.batches import Sampled
from harness.data.partition.shard import Csr, Shard

ALL = 2**31 - 1  # a fan-out that takes every neighbour
LAST, VECTOR = np.int32(2**31 - 1), 16  # above every place of a list; numbers that one instruction compares
SHORT = 64  # entries of a row that are put in order by counting


@dataclass
class Names:
    """What every worker knows of all V vertices, by name: [V] global ids and in-degrees; bounds [P + 1]."""

    bounds: np.ndarray
    ids: np.ndarray
    degrees: np.ndarray
    rank: int

    @staticmethod
    def gathered(comm: Comm, shard: Shard, degrees: np.ndarray) -> Names:
        """Collective, outside the train clock. degrees [n]: of this worker's vertices."""
        bounds = np.concatenate([[0], np.cumsum(shard.sizes)])
        return Names(bounds, comm.gathered(np.asarray(shard.inner)), comm.gathered(degrees), shard.rank)

    def own(self, names: np.ndarray) -> np.ndarray:
        """[q] bool: which of `names` [q] this worker owns."""
        return (names >= int(self.bounds[self.rank])) & (names < int(self.bounds[self.rank + 1]))

    def owners(self, names: np.ndarray) -> np.ndarray:
        """The worker that owns each of `names` [q]."""
        return np.searchsorted(self.bounds, names, side="right") - 1

    def by_owner(self, names: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The order [q] that sorts names by owner, and for each owner the local rows of its names."""
        if len(self.bounds) == 2:
            return np.arange(len(names)), [names]
        owners = self.owners(names)
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(np.bincount(owners, minlength=len(self.bounds) - 1))
        parts = np.split(names[order], ends[:-1])
        return order, [part - np.int32(first) for part, first in zip(parts, self.bounds)]


def hop_key(seed: int, epoch: int, step: int, hop: int) -> int:
    """64 bits: another for every (seed, epoch, step, hop)."""
    return _chained(0, seed, epoch, step, hop)


def _chained(key: int, *parts: int) -> int:
    for part in parts:
        key = mix_int((key + part * GOLDEN + 1) % 2**64)
    return key


@dataclass(frozen=True)
class FanOut:
    """How many neighbours are drawn per vertex: at most `most`, or exactly so many with replacement."""

    most: int
    replace: bool = False

    def taken(self, counts: np.ndarray) -> np.ndarray:
        """k_v [q] of vertices with `counts` [q] neighbours."""
        taken: np.ndarray = np.minimum(counts, self.most)
        if self.replace and self.most != ALL:
            taken = np.where(counts > 0, self.most, 0).astype(counts.dtype)
        return taken


def drawn(arrays: Arrays, rows: np.ndarray, key: int, fan_out: FanOut) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of neighbours [q] int32 of an owner's vertices, and what was chosen [sum of k_v, c] of
    their `lists`."""
    starts, lists = arrays["starts"], arrays["lists"]
    counts = (starts[rows, 1] - starts[rows, 0]).astype(np.int32)
    items = np.empty((int(fan_out.taken(counts).sum()), lists.shape[1]), lists.dtype)
    draw = _draw_again if fan_out.replace and fan_out.most != ALL else _draw
    draw(starts, lists, arrays["ids"], rows, np.uint64(key), fan_out.most, items)
    return counts, items


@numba.njit(cache=True, nogil=True)
def _read(lists, places, items):
    """items[i] = lists[places[i]]: apart from the draws, so that many reads are under way at once."""
    for i in range(len(places)):
        for c in range(lists.shape[1]):
            items[i, c] = lists[places[i], c]


@numba.njit(cache=True, nogil=True)
def _draw_again(starts, lists, ids, rows, key, most, items):
    """With replacement: the j-th of a vertex's draws is any of its d places."""
    at, places = 0, np.empty(len(items), np.int64)
    for q in range(len(rows)):
        begin, end = starts[rows[q], 0], starts[rows[q], 1]
        if begin == end:
            continue
        base = mix(key + np.uint64(ids[rows[q]]) * np.uint64(GOLDEN))
        for j in range(most):
            bits = mix(base + np.uint64(j) * np.uint64(GOLDEN)) >> np.uint64(32)
            places[at] = begin + np.int64((bits * np.uint64(end - begin)) >> np.uint64(32))
            at += 1
    _read(lists, places, items)


@numba.njit(cache=True, nogil=True)
def _draw(starts, lists, ids, rows, key, most, items):
    """Without replacement: `most` of a vertex's d places, ascending; all d where there are no more."""
    lanes = min(most, len(items)) + VECTOR - 1
    found = np.full(lanes - lanes % VECTOR, LAST, np.int32)
    at, places = 0, np.empty(len(items), np.int64)
    for q in range(len(rows)):
        begin, end = starts[rows[q], 0], starts[rows[q], 1]
        d = end - begin
        if d <= most:
            for e in range(begin, end):
                places[at] = e
                at += 1
            continue
        # Floyd: for j = d - k .. d - 1 take a place up to j, or j itself where that place is taken. Loops
        # over all places that have no branch are vectorised: fewer steps than keeping the places in order.
        base = mix(key + np.uint64(ids[rows[q]]) * np.uint64(GOLDEN))
        for k in range(most):
            j = np.uint64(d - most + k)
            bits = mix(base + j * np.uint64(GOLDEN)) >> np.uint64(32)
            found[k] = np.int32((bits * (j + np.uint64(1))) >> np.uint64(32))
        for k in range(1, most):
            same, place = np.int32(0), found[k]
            for i in range(k):
                same |= np.int32(found[i] == place)
            if same:
                found[k] = d - most + k
        for k in range(most):
            below, place = np.int32(0), found[k]
            for i in range(len(found)):
                below += np.int32(found[i] < place)
            places[at + below] = begin + place
        at += most
    _read(lists, places, items)


@dataclass
class Chosen:
    """What n vertices have drawn: how many neighbours each has [n], how many it drew [n], and which, vertex
    by vertex [sum of drawn, c], as in `lists_of`."""

    counts: np.ndarray
    taken: np.ndarray
    edges: np.ndarray

    @staticmethod
    def joined(parts: Sequence[Chosen]) -> Chosen:
        """The draws of all parts, those of one part's vertices after those of another's."""
        if len(parts) == 1:
            return parts[0]
        counts, taken, edges = zip(*((part.counts, part.taken, part.edges) for part in parts))
        return Chosen(np.concatenate(counts), np.concatenate(taken), np.concatenate(edges))

    def of(self, places: np.ndarray) -> Chosen:
        """The draws of the vertices at these places."""
        taken = self.taken[places]
        # An edge's place: where its vertex's edges begin, and how far it is from the first of them.
        shift = np.repeat(_starts(self.taken)[places] - _starts(taken)[:-1], taken)
        return Chosen(self.counts[places], taken, self.edges[shift + np.arange(len(shift))])


class Expander:
    """Makes the blocks of a worker's batches.

    names    of all vertices
    pulls    whose arrays are `lists_of` each worker's shard
    remote   "all"; "zero": other workers' vertices are leaves, whose rows are 0 in every layer, and nothing
             is asked of them
    replace  neighbours are drawn with replacement
    apart    a draw depends on the worker that asks for it, too
    """

    def __init__(
        self, names: Names, pulls: Pulls, remote: str = "all", replace: bool = False, apart: bool = False
    ):
        self.names, self.pulls, self.replace, self.apart = names, pulls, replace, apart
        low, high = names.bounds[names.rank], names.bounds[names.rank + 1]
        self.low, self.high = (int(low), int(high)) if remote == "zero" else (0, len(names.ids))
        # of a name among the sources, while a block is made
        self.place = np.full(len(names.ids), -1, np.int32)

    def choose(self, vertices: np.ndarray, key: int, most: int, layer: int) -> Chosen:
        """What `vertices` [n] int32 names draw, each at its owner.

        key     `hop_key` of the hop
        most    the fan-out, or ALL
        layer   the layer that the bytes are counted for
        """
        fan_out = FanOut(most, self.replace)
        order, asked = self.names.by_owner(vertices)

        def draw(arrays: Arrays, rows: np.ndarray, asker: int) -> tuple[np.ndarray, np.ndarray]:
            return drawn(arrays, rows, _chained(key, asker) if self.apart else key, fan_out)

        found = self.pulls.lists(draw, fan_out.taken, asked, Purpose("sample", "neighbours", layer))
        counts = np.empty(len(vertices), np.int32)
        counts[order] = np.concatenate([counts for counts, _ in found])
        taken = fan_out.taken(counts)
        if len(found) == 1:
            return Chosen(counts, taken, found[0][1])
        items = np.concatenate([items for _, items in found])
        edges = np.empty_like(items)
        _in_order(order, taken, _starts(taken), items, edges)
        return Chosen(counts, taken, edges)

    def sources(self, frontier: np.ndarray, chosen: Chosen) -> np.ndarray:
        """The names of all sources of `block` that have rows."""
        columns = np.ascontiguousarray(chosen.edges[:, 0])
        _, new, _ = _number(frontier, columns, self.low, self.high, self.place)
        return np.concatenate([frontier, new])

    def block(self, frontier: np.ndarray, chosen: Chosen) -> tuple[Sampled, np.ndarray]:
        """The block of one hop, whose destinations are `frontier` [n] int32 names, unique, of what `choose`
        gave for them; and the names of all sources that have rows, destinations first."""
        starts, edges = _starts(chosen.taken), chosen.edges
        n, columns = len(frontier), np.ascontiguousarray(edges[:, 0])
        local, new, leaves = _number(frontier, columns, self.low, self.high, self.place)
        bits = np.ascontiguousarray(edges[:, 1]) if edges.shape[1] > 1 else np.empty(0, np.int32)
        parts = _split(starts, local, bits.view(np.float32), n)
        near_ptr, near, near_values, far_ptr, far, far_values = parts
        weighted, halo = edges.shape[1] > 1, np.concatenate([new, leaves])
        factor = np.divide(chosen.counts, chosen.taken, out=np.ones(n), where=chosen.taken > 0)
        found = Sampled(
            Csr(near_ptr, near, n, near_values if weighted else None),
            Csr(far_ptr, far, len(halo), far_values if weighted else None),
            self.names.ids[frontier],
            self.names.ids[halo],
            self.names.degrees[frontier],
            self.names.degrees[halo],
            factor,
            len(leaves),
        )
        return found, np.concatenate([frontier, new])


def _starts(taken: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(taken)])


@numba.njit(cache=True, nogil=True)
def _in_order(order, taken, starts, items, out):
    """Lists that came by owner, back in the order of those who were asked about."""
    at = 0
    for q in range(len(order)):
        v = order[q]
        for k in range(taken[v]):
            for c in range(items.shape[1]):
                out[starts[v] + k, c] = items[at, c]
            at += 1


@numba.njit(cache=True, nogil=True)
def _number(frontier, columns, low, high, place):
    """Every edge's source as a number among the sources: destinations first, then other names in [low, high)
    as they are met, then the rest likewise. `place` [V] is all -1, before and after.
    """
    # Number destinations, then each other name when it is first met; a name beyond the range gets a negative
    # number, -2 and below, until it is known how many come before.
    n, local = len(frontier), np.empty(len(columns), np.int32)
    for i in range(n):
        place[frontier[i]] = i
    found, beyond = np.empty(len(columns), np.int32), np.empty(len(columns), np.int32)
    m = leaves = 0
    for e in range(len(columns)):
        name = columns[e]
        at = place[name]
        if at == -1:
            if low <= name < high:
                found[m] = name
                at = n + m
                m += 1
            else:
                beyond[leaves] = name
                at = -2 - leaves
                leaves += 1
            place[name] = at
        local[e] = at
    for e in range(len(columns)):
        if local[e] < -1:
            local[e] = n + m - 2 - local[e]
    for i in range(n):
        place[frontier[i]] = -1
    for i in range(m):
        place[found[i]] = -1
    for i in range(leaves):
        place[beyond[i]] = -1
    return local, found[:m].copy(), beyond[:leaves].copy()


@numba.njit(cache=True, nogil=True)
def _split(starts, local, values, n):
    """Edges as two blocks, over sources below n and over the others, columns ascending in every row."""
    near_ptr, far_ptr = np.zeros(n + 1, np.int32), np.zeros(n + 1, np.int32)
    near, far = np.empty(len(local), np.int32), np.empty(len(local), np.int32)
    near_values, far_values = np.empty(len(values), np.float32), np.empty(len(values), np.float32)
    most = 0
    for v in range(n):
        most = max(most, starts[v + 1] - starts[v])
    order = np.empty(most, np.int64)
    i = h = 0
    for v in range(n):
        first, last = starts[v], starts[v + 1]
        _ascending(local, first, last, order)
        for k in range(last - first):
            e = order[k]
            if local[e] < n:
                near[i] = local[e]
                if len(values):
                    near_values[i] = values[e]
                i += 1
            else:
                far[h] = local[e] - n
                if len(values):
                    far_values[h] = values[e]
                h += 1
        near_ptr[v + 1], far_ptr[v + 1] = i, h
    kept = min(i, len(values)), min(h, len(values))
    return (
        near_ptr, near[:i].copy(), near_values[: kept[0]].copy(),
        far_ptr, far[:h].copy(), far_values[: kept[1]].copy(),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _ascending(numbers, first, last, order):
    """order[: last - first] <- first..last-1 in the order in which numbers ascend, equal ones as they stand:
    in short lists, as drawn ones are, each number's place is counted, which is vectorised.
    """
    count = last - first
    if count > SHORT:
        places = np.argsort(numbers[first:last], kind="mergesort")
        for i in range(count):  # an assignment of slices takes 2.6 s to compile
            order[i] = first + places[i]
        return
    keys = np.empty(SHORT, np.int64)
    for i in range(count):
        keys[i] = np.int64(numbers[first + i]) * SHORT + i
    for i in range(count):
        below, key = 0, keys[i]
        for k in range(count):
            below += keys[k] < key
        order[below] = first + i
