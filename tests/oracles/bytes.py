"""What must cross rank boundaries, counted from the definitions: float32 values (4 bytes), totals over all
ranks.

`widths` is [f_0, f_1, ..., f_L]: features, hidden widths, classes. Layer l (from 0) maps width f_l to
f_{l+1}. An epoch's counts are arrays [L] by layer, one for "forward" and one for "backward". `first` says
whether the epoch is a run's first (epoch 0), in which features = "once" still fetches layer 0.
"""

import numpy as np

from tests.oracles.dense import adjacency
from tests.oracles.split import blocks_of, remote_rows

FLOAT = 4


def halo_rows(graph, assignment: np.ndarray) -> np.ndarray:
    """[P, P] rows[j, i]: vertices owned by j with an edge to a vertex of i; each counts once, whatever its
    edges.
    """
    rows = remote_rows(adjacency(graph), assignment)
    return np.array([[len(rows[i][j]) for i in range(len(rows))] for j in range(len(rows))])


def vanilla(
    graph, assignment: np.ndarray, widths: list[int], *, features: str, first: bool
) -> dict[str, dict[str, np.ndarray]]:
    """{"rows" | "bytes": {"forward" | "backward": [L]}} of one epoch's exact halo exchange.

    Layer l's forward exchange moves rows of H^(l), width f_l, from owners to readers; its backward exchange
    moves their gradients, of the same width, back. Features need no gradient, so layer 0 has no backward
    exchange.
    """
    halo, layers = int(halo_rows(graph, assignment).sum()), len(widths) - 1
    rows = {"forward": np.zeros(layers, dtype=np.int64), "backward": np.zeros(layers, dtype=np.int64)}
    for l in range(layers):
        rows["forward"][l] = 0 if l == 0 and features == "once" and not first else halo
        rows["backward"][l] = 0 if l == 0 else halo
    width = np.array(widths[:layers], dtype=np.int64)
    return {"rows": rows, "bytes": {direction: FLOAT * width * n for direction, n in rows.items()}}


def jaca(
    graph,
    assignment: np.ndarray,
    widths: list[int],
    *,
    local_capacity: int,
    features: str,
    refresh: int,
    epoch: int,
) -> dict[str, np.ndarray]:
    """{"forward" | "backward": [L]} bytes of one epoch of CaPGNN's cache, `policy=jaca`, `gradients=exact`.

    Every row that a worker receives counts once, from its owner or out of the global tier, whose size
    therefore does not matter. In a refresh a worker receives its whole halo; between refreshes, what its own
    tier, of `local_capacity` vertices, does not hold. Layer 0 is refreshed in epoch 0 only, and under "once"
    never read again. The gradients of all halo rows of layers 1.. go back in every epoch.
    """
    halos, layers = halo_rows(graph, assignment).sum(axis=0), len(widths) - 1
    whole, missing = int(halos.sum()), int(np.maximum(halos - local_capacity, 0).sum())
    forward, backward = np.zeros(layers, dtype=np.int64), np.zeros(layers, dtype=np.int64)
    for l in range(layers):
        renewed = epoch % refresh == 0 if l else epoch == 0
        between = 0 if l == 0 and features == "once" else missing
        forward[l] = FLOAT * widths[l] * (whole if renewed else between)
        backward[l] = FLOAT * widths[l] * (whole if l else 0)
    return {"forward": forward, "backward": backward}


def cagnet(
    num_vertices: int, parts: int, widths: list[int], *, features: str, first: bool, replication: int = 1
) -> dict[str, np.ndarray]:
    """{"forward" | "backward": [L]} bytes of one epoch of CAGNET, 1D or with `replication` c (1.5D).

    Layer l's products send H^(l) forward (width f_l) and δ^(l+1) backward (width f_{l+1}); a product of width
    f is 4 N f (P/c - 1 + 2 (c - 1)), which for c = 1 is every block to every other rank: with "refetch"
    4 (P-1) N (f_0 + 2 f_1 + ... + 2 f_{L-1} + f_L) in all. With "once" ÂX is kept, so layer 0 broadcasts
    features in the first epoch only, to all at any c, and ∂W^(0) = (ÂX)ᵀ δ^(1) never needs another rank's
    δ^(1).
    """
    layers, c = len(widths) - 1, replication
    a_column = FLOAT * num_vertices * (parts // c - 1 + 2 * (c - 1))
    forward, backward = np.zeros(layers, dtype=np.int64), np.zeros(layers, dtype=np.int64)
    for l in range(layers):
        if l > 0 or features == "refetch":
            forward[l], backward[l] = a_column * widths[l], a_column * widths[l + 1]
        elif first:
            forward[l] = FLOAT * (parts - 1) * num_vertices * widths[l]
    return {"forward": forward, "backward": backward}


def sancus(
    active: np.ndarray, assignment: np.ndarray, widths: list[int], *, features: str
) -> dict[str, np.ndarray]:
    """{"forward" | "backward" | "flags": [L]} bytes of one SANCUS epoch whose flags were `active` [L, P].

    Forward: an ACTIVE block j costs 4 (P-1) n_j f_l. Backward: as CAGNET. Flags: before the broadcasts of a
    layer every rank tells the P-1 others one byte, in every epoch (0 included) and for every layer to which
    the staleness rule applies: all with "refetch", all but layer 0 with "once" and "kept".
    """
    layers, parts = active.shape
    sizes = [len(rows) for rows in blocks_of(assignment)]
    forward, flags = np.zeros(layers, dtype=np.int64), np.zeros(layers, dtype=np.int64)
    for l in range(layers):
        for j in range(parts):
            if active[l, j]:
                forward[l] += FLOAT * (parts - 1) * sizes[j] * widths[l]
        if l > 0 or features == "refetch":
            flags[l] = (parts - 1) * parts
    deltas = "once" if features == "once" else "refetch"
    backward = cagnet(len(assignment), parts, widths, features=deltas, first=False)["backward"]
    return {"forward": forward, "backward": backward, "flags": flags}


def all_reduce(num_weights: int, parts: int) -> int:
    """Bytes of an all-reduce of n = `num_weights` float32 values, all ranks together: 2 (P-1) n 4.

    A ring's reduce-scatter and all-gather hand out (P-1)/P n values a rank each.
    """
    return 2 * (parts - 1) * num_weights * FLOAT
