"""The edges of a twin: degree-corrected blocks in a hierarchy, drawn row by row, simple and symmetric.

Vertices are *positions* here, laid out so that every block of every level is an interval. Vertex u makes
about as many draws as half its target degree. A draw chooses a level by the level's share, then a vertex v of
u's block at that level with probability w_v / (sum of w over the block), so P(u, v) is proportional to
w_u w_v in a block (Karrer and Newman 2011). The weight w_v is v's target degree times the share of it that is
distant (at far levels) or near. Each draw depends on (seed, round, u) only, so the graph is the same whatever
the number of threads."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numba import njit, prange

from harness.base.splitmix import GOLDEN, mix

ROUNDS = 60  # at most
CLOSE_ENOUGH = 5e-4  # share of the edges that may be missing: another round would cost more than it adds
TRIES = 12  # vertices that one draw may propose before it is given up


@dataclass(frozen=True)
class Layout:
    """The hierarchy over positions, coarse to fine.

    block   [L, V] int32: the block of each position at each level
    first   [L] int64: where level l begins in `bounds`
    bounds  positions at which blocks begin: block b of level l is bounds[first[l] + b] .. bounds[first[l] + b
            + 1]
    far     the first `far` levels join distant blocks; only bridge vertices take part in them
    shares  [L] share of the edges drawn at each level, adding up to 1
    degree  [V] float64 target degrees
    bridge  [V] bool: has distant edges
    """

    block: np.ndarray
    first: np.ndarray
    bounds: np.ndarray
    far: int
    shares: np.ndarray
    degree: np.ndarray
    bridge: np.ndarray


def draw(layout: Layout, edges: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(indptr [V+1] int64, indices [~edges] int32, rows unsorted) of a simple symmetric graph over positions.

    A round falls short, since vertices that draw each other make one edge, and a draw may be given up. Each
    next round draws what is missing, until that is at most 0.05 % of `edges` or ROUNDS are over."""
    vertices = len(layout.degree)
    reach = _reach(layout)
    cumulative, guide = _tables(layout, reach)
    levels = _level_shares(layout)
    indptr, indices = np.zeros(vertices + 1, np.int64), np.empty(0, np.int32)
    for round_ in range(ROUNDS):
        deficit = edges - len(indices)
        if deficit <= CLOSE_ENOUGH * edges:
            break
        expected = layout.degree * (deficit / 2 / layout.degree.sum())
        wanted = _draws(_at_least_one(expected) if round_ == 0 else expected, seed, round_)
        begin = np.zeros(vertices + 1, np.int64)
        np.cumsum(wanted, out=begin[1:])
        targets, taken = np.empty(begin[-1], np.int32), np.zeros(vertices, np.int64)
        splits = _even_splits(begin)
        _draw_rows(
            indptr,
            indices,
            begin,
            splits,
            layout.block,
            layout.first,
            layout.bounds,
            layout.far,
            levels,
            reach,
            cumulative,
            guide,
            np.uint64(seed),
            np.uint64(round_ + 1),
            targets,
            taken,
        )
        back_begin, back = _transpose(begin, taken, targets, vertices)
        indptr, indices = _merge(indptr, indices, begin, taken, targets, back_begin, back, splits)
    return indptr, indices


def relabel(indptr: np.ndarray, indices: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same symmetric graph over ids: id i stands at position[i]. Rows come out ascending."""
    identity = np.empty(len(position), np.int32)
    identity[position] = np.arange(len(position), dtype=np.int32)
    return _relabel(indptr, indices, position, identity)


def _at_least_one(expected: np.ndarray) -> np.ndarray:
    """`expected` scaled down and raised to 1 at least, with the same sum, so that every vertex has a draw."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(middle * expected, 1.0).sum() < expected.sum() else (low, middle)
        )
    return np.maximum(low * expected, 1.0)


def _reach(layout: Layout) -> np.ndarray:
    """[V] the share of each vertex's edges that are distant: 0 unless it is a bridge. Bridges have so many
    that the whole graph has the share that `layout.shares` gives far levels, as far as degrees allow."""
    share = layout.shares[: layout.far].sum()
    carried = layout.degree[layout.bridge].sum() / layout.degree.sum()
    return np.where(layout.bridge, min(share / max(carried, 1e-12), 1.0), 0.0)


def _tables(layout: Layout, reach: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(cumulative, guide), [2, V + 1] each: the running sums of the distant (row 0) and near (row 1) weights,
    and the positions at which V equal slices of each sum begin, where `_pick` starts to search."""
    vertices = len(layout.degree)
    cumulative = np.zeros((2, vertices + 1))
    np.cumsum(layout.degree * reach, out=cumulative[0, 1:])
    np.cumsum(layout.degree * (1 - reach), out=cumulative[1, 1:])
    guide = np.empty((2, vertices + 1), np.int32)
    for row in (0, 1):
        slices = np.linspace(0.0, cumulative[row, -1], vertices + 1)
        guide[row] = np.maximum(np.searchsorted(cumulative[row], slices, side="right") - 1, 0)
    return cumulative, guide


def _level_shares(layout: Layout) -> np.ndarray:
    """[L] running shares, the far levels and the near ones each ending at 1."""
    running = np.ones(len(layout.shares))
    for levels in (slice(0, layout.far), slice(layout.far, None)):
        if running[levels].size:
            running[levels] = np.cumsum(layout.shares[levels]) / max(layout.shares[levels].sum(), 1e-12)
            running[levels][-1] = 1.0
    return running


@njit(inline="always")
def _stream(seed, round_, vertex):
    return mix(mix(seed * np.uint64(GOLDEN) + round_) + np.uint64(vertex) * np.uint64(0xD1B54A32D192ED03))


@njit(inline="always")
def _step(state):
    return state + np.uint64(GOLDEN)


@njit(inline="always")
def _unit(state):
    return np.float64(mix(state) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True)
def _draws(expected, seed, round_):
    """[V] int64: `expected` rounded up or down at random, so that its mean is kept."""
    out = np.empty(len(expected), np.int64)
    for u in range(len(expected)):
        out[u] = np.int64(
            expected[u] + _unit(_stream(np.uint64(seed), np.uint64(round_) + np.uint64(1 << 32), u))
        )
    return out


def _even_splits(begin: np.ndarray) -> np.ndarray:
    """Row ranges of about equal work, one per thread."""
    threads = numba.get_num_threads()
    work = begin + np.arange(len(begin))
    return np.searchsorted(work, np.linspace(0, work[-1], threads + 1)).astype(np.int64)


@njit(inline="always")
def _pick(cumulative, guide, low, high, unit):
    """A position of [low, high), with probability proportional to its weight; -1 where all weights are 0."""
    base, mass = cumulative[low], cumulative[high] - cumulative[low]
    if mass <= 0.0:
        return -1
    x = base + unit * mass
    i = max(guide[min(np.int64(x / cumulative[-1] * (len(guide) - 1)), len(guide) - 1)], low)
    while i < high - 1 and cumulative[i + 1] <= x:
        i += 1
    return i


@njit(parallel=True, cache=True, nogil=True)
def _draw_rows(
    indptr,
    indices,
    begin,
    splits,
    block,
    first,
    bounds,
    far,
    levels,
    reach,
    cumulative,
    guide,
    seed,
    round_,
    targets,
    taken,
):
    """Draw neighbours of every vertex u into targets[begin[u]:], and count them in taken[u]. A thread fills
    the rows of one range of `splits`; threads share nothing that is written."""
    last = len(levels) - 1
    for part in prange(len(splits) - 1):
        # mark[v] == u: v is u, or a neighbour of u already, so that no draw repeats an edge.
        mark = np.full(block.shape[1], -1, np.int32)
        for u in range(splits[part], splits[part + 1]):
            mark[u] = u
            for e in range(indptr[u], indptr[u + 1]):
                mark[indices[e]] = u
            state = _stream(seed, round_, u)
            slot = begin[u]
            for _ in range(begin[u + 1] - begin[u]):
                # One random number decides between far and near levels, the next chooses the level.
                state = _step(state)
                near = 0 if _unit(state) < reach[u] else 1
                state = _step(state)
                unit = _unit(state)
                level = far if near else 0
                while level < last and unit >= levels[level]:
                    level += 1
                for attempt in range(TRIES):
                    # A draw that meets a marked vertex is repeated, every second time one level up, as the
                    # block may be full. The last four draw from the coarsest level, for hubs whose near
                    # levels are full: three among bridges, and one among all vertices by near weight.
                    if attempt >= TRIES - 4:
                        level = 0
                    elif attempt % 2 == 1 and level > (far if near else 0):
                        level -= 1
                    table = near if attempt < TRIES - 4 else (1 if attempt == TRIES - 1 else 0)
                    start = first[level] + block[level, u]
                    state = _step(state)
                    v = _pick(cumulative[table], guide[table], bounds[start], bounds[start + 1], _unit(state))
                    if v >= 0 and mark[v] != u:
                        mark[v] = u
                        targets[slot] = v
                        slot += 1
                        break
            taken[u] = slot - begin[u]


@njit(cache=True)
def _transpose(begin, taken, targets, vertices):
    """(starts, vertices) of the draws by target: row v holds the vertices that drew v, ascending."""
    counts = np.zeros(vertices + 1, np.int64)
    for u in range(vertices):
        for e in range(begin[u], begin[u] + taken[u]):
            counts[targets[e] + 1] += 1
    row = np.cumsum(counts)
    cursor, back = row[:-1].copy(), np.empty(row[-1], np.int32)
    for u in range(vertices):
        for e in range(begin[u], begin[u] + taken[u]):
            v = targets[e]
            back[cursor[v]] = u
            cursor[v] += 1
    return row, back


@njit(parallel=True, cache=True, nogil=True)
def _merge(indptr, indices, begin, taken, targets, back_begin, back, splits):
    """(indptr, indices) of the earlier rows with this round's draws and the reverse of each.

    The drawing loop marks earlier edges, so no draw repeats one. Only a draw u -> v and the reverse of a draw
    v -> u can be the same edge: it is kept once."""
    vertices = len(taken)
    # Count the entries of every merged row, then fill the rows.
    size = np.zeros(vertices + 1, np.int64)
    for part in prange(len(splits) - 1):
        mark = np.full(vertices, -1, np.int32)
        for u in range(splits[part], splits[part + 1]):
            for e in range(begin[u], begin[u] + taken[u]):
                mark[targets[e]] = u
            fresh = indptr[u + 1] - indptr[u] + taken[u]
            for e in range(back_begin[u], back_begin[u + 1]):
                if mark[back[e]] != u:
                    fresh += 1
            size[u + 1] = fresh
    row = np.cumsum(size)
    merged = np.empty(row[-1], np.int32)
    for part in prange(len(splits) - 1):
        mark = np.full(vertices, -1, np.int32)
        for u in range(splits[part], splits[part + 1]):
            slot = row[u]
            for e in range(indptr[u], indptr[u + 1]):
                merged[slot] = indices[e]
                slot += 1
            for e in range(begin[u], begin[u] + taken[u]):
                mark[targets[e]] = u
                merged[slot] = targets[e]
                slot += 1
            for e in range(back_begin[u], back_begin[u + 1]):
                if mark[back[e]] != u:
                    merged[slot] = back[e]
                    slot += 1
    return row, merged


@njit(cache=True)
def _relabel(indptr, indices, position, identity):
    vertices = len(position)
    row = np.zeros(vertices + 1, np.int64)
    for i in range(vertices):
        row[i + 1] = row[i] + indptr[position[i] + 1] - indptr[position[i]]
    cursor, out = row[:-1].copy(), np.empty(len(indices), np.int32)
    # Ids are visited in ascending order and each is written into its neighbours' rows, so rows come out
    # ascending; as the graph is symmetric, these are the same rows as by writing neighbours into its own row.
    for i in range(vertices):
        p = position[i]
        for e in range(indptr[p], indptr[p + 1]):
            j = identity[indices[e]]
            out[cursor[j]] = i
            cursor[j] += 1
    return row, out
