"""Edge-cut by the neighbourhoods of labelled vertices: ByteGNN's Algorithm 2, as "Scaling Graph Neural
Networks: Innovations in Distributed and Decentralized Training for Billion-Scale Graphs", section 4.2.3,
describes it.

    blocks: a search of at most K hops along in-edges from all centres at once; a vertex joins the centre
    that reaches it first
    every block B_i goes to the part P_j with the highest CE[j] BS[j]:
        CE[j] = (edges between P_j and B_i) / |P_j|
        BS[j] = 1 - alpha |P_j(train)| / C(train) - beta |P_j(val)| / C(val) - gamma |P_j(test)| / C(test)

with P_j what has been put into part j so far, P_j(s) its vertices of split s, C(s) = |V(s)| / parts.

Decisions
- neighbours are followed along in-edges. K is not printed; the default is 2 whatever the model's depth: give
  hops=LAYERS to match it.
- the centre that reaches a vertex first is the nearest in hops; of several as near, the one of lowest id.
- edges are counted on the undirected pattern without self-loops, each once.
- an empty part has CE = 0, and so has every part at the first block: `literal` takes CE as printed, and lets
  the lowest part win such ties; else 1 + CE stands for CE.
- the printed order, descending max(|B(train)|, |B(val)|, |B(test)|), read as the block's own vertices of each
  split, is one tie under the printed centres, since a block's only labelled vertex is its centre. So blocks
  go by size, largest first; `literal` takes the printed key. Ties go by the centre's id.
- alpha, beta, gamma are not given. 1/3 each keeps BS at 0 or more as long as a part's three quotas are, on
  average, at most full; with 1 each it turns negative when they are a third full, and then prefers the part
  that shares the fewest edges.
- vertices that no centre reaches come last, in ascending order, each to the part of highest
  (1 + CE[j]) (1 - |P_j| parts / V).
- where every vertex is in a split and `centres=labelled`, each block is one vertex; `centres=train` takes the
  vertices that training samples from."""

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from harness.base.bounds import number, word
from harness.data.graph import Graph
from harness.data.partition.assign import undirected
from harness.data.partition.config import EdgeCutPartitioner

UNREACHED = -1


@dataclass
class Neighbourhood(EdgeCutPartitioner):
    """ByteGNN's: blocks around labelled vertices, each to the part that shares most edges with it and lacks
    labelled vertices.

    hops      K: how far a block reaches from its centre
    centres   "labelled": every vertex of a split; "train": training vertices
    literal   CE instead of 1 + CE, and the order of blocks, as printed. For ties nothing is printed: the
              lowest part wins
    alpha     weight of the balance of training vertices
    beta      weight of the balance of validation vertices
    gamma     weight of the balance of test vertices
    """

    hops: int = number(2)
    centres: str = word("labelled", "train")
    literal: bool = False
    alpha: float = number(1 / 3)
    beta: float = number(1 / 3)
    gamma: float = number(1 / 3)

    drawn: ClassVar[bool] = False

    def vertex_owners(self, graph: Graph, parts: int, seed: int) -> np.ndarray:
        splits = np.stack([graph.train, graph.val, graph.test])
        centres = graph.train if self.centres == "train" else graph.train | graph.val | graph.test
        centre = blocks(graph, centres, self.hops)
        indptr, indices = undirected(graph)
        starts, members = self._in_order(centre, splits)
        quotas = splits.sum(1) / parts
        weights = np.array([self.alpha, self.beta, self.gamma])
        # A split without vertices has no share in the balance.
        rates = np.divide(weights, quotas, out=np.zeros(3), where=quotas > 0)
        return _assign(
            np.asarray(indptr), np.asarray(indices), starts, members, splits, rates, parts, not self.literal
        )

    def _in_order(self, centre: np.ndarray, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Blocks one after another, as they are assigned: starts [blocks + 1], members [V]. The vertices that
        no centre reaches follow, after starts[-1]."""
        by_centre = np.argsort(centre, kind="stable")
        reached = by_centre[np.searchsorted(centre[by_centre], 0) :]
        firsts = np.flatnonzero(np.diff(centre[reached], prepend=UNREACHED))
        sizes = np.diff(np.append(firsts, len(reached)))
        key = sizes
        if self.literal and len(firsts):
            key = np.add.reduceat(splits[:, reached].astype(np.int64), firsts, axis=1).max(0)
        order = np.argsort(-key, kind="stable")
        starts = np.concatenate([[0], np.cumsum(sizes[order])])
        # The places in `reached` of all members, block by block: where a block begins there, plus 0, 1, ...
        places = np.repeat(firsts[order] - starts[:-1], sizes[order]) + np.arange(len(reached))
        unreached = by_centre[: len(by_centre) - len(reached)]
        return starts, np.concatenate([reached[places], unreached])


def blocks(graph: Graph, centres: np.ndarray, hops: int) -> np.ndarray:
    """[V] the centre whose block each vertex joins, UNREACHED where none is within `hops` in-edges.

    centres   [V] bool; a centre joins its own block
    """
    centre = np.where(centres, np.arange(graph.num_vertices), UNREACHED)
    frontier = np.flatnonzero(centres)
    for _ in range(hops):
        if not len(frontier):
            break
        frontier = _hop(np.asarray(graph.indptr), np.asarray(graph.indices), frontier, centre)
    return centre


@numba.njit(cache=True)
def _hop(indptr, indices, frontier, centre):
    """Give each in-neighbour of `frontier` that has no centre yet the lowest centre that reaches it, in
    `centre`. Returns these vertices, the next frontier."""
    found, m = np.empty(len(centre), np.int64), 0
    nearest = np.full(len(centre), -1, np.int64)
    for v in frontier:
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if centre[u] >= 0:
                continue
            if nearest[u] < 0:
                found[m] = u
                m += 1
                nearest[u] = centre[v]
            elif centre[v] < nearest[u]:
                nearest[u] = centre[v]
    for i in range(m):
        centre[found[i]] = nearest[found[i]]
    return found[:m].copy()


@numba.njit(cache=True)
def _assign(indptr, indices, starts, members, splits, rates, parts, mended):
    """Owners [V] int32: of the blocks one after another, then of each unreached vertex by itself."""
    owners = np.full(len(members), -1, np.int32)
    sizes, counts = np.zeros(parts, np.int64), np.zeros((3, parts), np.int64)
    num_blocks = len(starts) - 1
    last = starts[num_blocks]
    shared = np.empty(parts, np.int64)
    for block in range(num_blocks + len(members) - last):
        inside = block < num_blocks
        begin = starts[block] if inside else last + block - num_blocks
        end = starts[block + 1] if inside else begin + 1
        # Edges from the block to each part. Those inside the block do not count: none of its vertices has an
        # owner yet.
        shared[:] = 0
        for i in range(begin, end):
            v = members[i]
            for e in range(indptr[v], indptr[v + 1]):
                owner = owners[indices[e]]
                if owner >= 0:
                    shared[owner] += 1
        best, most = 0, -np.inf
        for j in range(parts):
            crossing = shared[j] / sizes[j] if sizes[j] else 0.0
            if mended or not inside:
                crossing += 1.0
            balance = 1.0
            if inside:
                for s in range(3):
                    balance -= rates[s] * counts[s, j]
            else:
                balance -= sizes[j] * parts / len(members)
            if crossing * balance > most:
                best, most = j, crossing * balance
        for i in range(begin, end):
            v = members[i]
            owners[v] = best
            sizes[best] += 1
            for s in range(3):
                counts[s, best] += splits[s, v]
    return owners
