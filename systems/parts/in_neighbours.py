"""Every vertex's in-neighbours as arrays that other workers can read from (`harness.comm.pulls`)."""

import numba
import numpy as np

from harness.data.partition.shard import Shard


def lists_of(shard: Shard, local: bool) -> dict[str, np.ndarray]:
    """The in-neighbours of a worker's vertices as arrays to be pulled from: `starts` [n, 2] (where a vertex's
    list begins and ends), `lists` [E, c] (names, and where edges have weights the bits of each), and `ids`
    [n] (global).

    local   only neighbours that the worker owns
    """
    inner, halo = shard.inner_edges, shard.halo_edges
    first = np.concatenate([[0], np.cumsum(shard.sizes)])
    own = np.arange(first[shard.rank], first[shard.rank + 1], dtype=np.int32)
    owner = np.repeat(np.arange(shard.num_workers), shard.halo_counts)
    far = (first[owner] + shard.halo_rows).astype(np.int32)
    if local:
        halo = halo.emptied(halo.num_columns)
    starts = inner.indptr.astype(np.int64) + halo.indptr
    lists = np.empty((int(starts[-1]), 1 + shard.weighted), np.int32)
    none = np.empty(0, np.float32)
    bits = [(none if b.values is None else np.asarray(b.values)).view(np.int32) for b in (inner, halo)]
    _merge(
        starts, inner.indptr, inner.indices, bits[0], halo.indptr, halo.indices, bits[1],
        np.asarray(shard.inner), np.asarray(shard.halo), own, far, lists,
    )  # fmt: skip
    return {"starts": np.stack([starts[:-1], starts[1:]], 1), "lists": lists, "ids": np.asarray(shard.inner)}


@numba.njit(cache=True, nogil=True)
def _merge(starts, near_ptr, near, near_bits, far_ptr, far, far_bits, near_ids, far_ids, own, names, lists):
    """Both blocks' columns of every row by ascending global id: inner ones ascend already, halo ones are
    sorted first."""
    for v in range(len(starts) - 1):
        there = far[far_ptr[v] : far_ptr[v + 1]]
        order = np.argsort(far_ids[there], kind="mergesort")  # as `neighbours` has it: compiled once for both
        i, h, e = near_ptr[v], 0, starts[v]
        while i < near_ptr[v + 1] or h < len(order):
            if h == len(order) or (i < near_ptr[v + 1] and near_ids[near[i]] < far_ids[there[order[h]]]):
                lists[e, 0] = own[near[i]]
                if lists.shape[1] > 1:
                    lists[e, 1] = near_bits[i]
                i += 1
            else:
                lists[e, 0] = names[there[order[h]]]
                if lists.shape[1] > 1:
                    lists[e, 1] = far_bits[far_ptr[v] + order[h]]
                h += 1
            e += 1
