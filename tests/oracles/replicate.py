"""Which rows `replicate` computes and fetches, from the dense matrix and its docstring: rows as pairs
(vertex, l) of H[l], one set per worker of those that it computes.
"""

import numpy as np

from tests.oracles.dense import adjacency

Row = tuple[int, int]


def tree(a: np.ndarray, row: Row, computed: set[Row]) -> tuple[set[Row], set[int]]:
    """T: the rows l >= 1 that a row depends on and that are not computed yet; and the vertices whose features
    these read."""
    found, features, open_ = set[Row](), set[int](), [row]
    while open_:
        v, k = open_.pop()
        if k == 0:
            features.add(v)
        elif (v, k) not in computed | found:
            found.add((v, k))
            open_ += [(w, k - 1) for w in [v, *np.flatnonzero(a[v])]]
    return found, features


def choose(graph, assignment, widths, *, needed, mode, vertex=1, edge=1, row=16, memory=None):
    """By worker: the rows that it computes, and by layer the vertices whose rows it fetches; at layer 0 all
    remote ones whose features it reads. Whose row of a layer is computed, whose rows of layers below are."""
    a, layers = adjacency(graph) != 0, len(widths) - 1
    np.fill_diagonal(a, False)
    degrees, workers = a.sum(1), range(assignment.max() + 1)
    own = [set(np.flatnonzero(assignment == i).tolist()) for i in workers]
    computed: list[set[Row]] = [
        {(v, l) for v in mine for l in range(1, layers + 1) if not needed or graph.train[v]} for mine in own
    ]
    held = [mine | {int(u) for v in mine for u in np.flatnonzero(a[v])} for mine in own]
    room = [np.inf if memory is None else memory for _ in workers]
    fetched = [[set[int]() for _ in range(layers)] for _ in workers]

    def cost(found):
        return sum((vertex + edge * int(degrees[v])) * widths[k] for v, k in found)

    for l in reversed(range(1, layers)):
        for i in workers:
            read = {w for v, k in computed[i] if k == l + 1 for w in [v, *np.flatnonzero(a[v]).tolist()]}
            computed[i] |= {(v, k) for v in read & own[i] for k in range(1, l + 1)}
            limit = 2 * row * widths[l]
            wanted = [u for u in read - own[i] if (u, l) not in computed[i]]
            before = {u: min(cost(tree(a, (u, l), computed[i])[0]), limit) for u in wanted}
            for u in sorted(wanted, key=lambda u: (before[u], assignment[u], u)):
                found, features = tree(a, (u, l), computed[i])
                more = {v for v, _ in found} | features
                new = len(more - held[i])
                if mode == "cache" or (mode == "hybrid" and cost(found) < limit and new <= room[i]):
                    room[i] -= new
                    held[i] |= more
                    computed[i] |= found
                else:
                    fetched[i][l].add(u)
        for i in workers:
            for j in workers:
                computed[i] |= {(u, k) for u in fetched[j][l] & own[i] for k in range(1, l + 1)}
    for i in workers:
        read = {w for v, k in computed[i] if k == 1 for w in [v, *np.flatnonzero(a[v]).tolist()]}
        fetched[i][0] = read - own[i]
    return computed, fetched
