"""What is wrong with a shard that was read from a file: its types, shapes and ranges.

Compiled loops use a shard's indices unchecked; one that is out of range would end the process."""

import numpy as np

from harness.data.partition.shard import Csr, ReplicaShard, Shard

WHOLE = "iu"  # kinds of numpy types: integers
DEGREES = "iuf"  # of a weighted graph, sums of weights


def fault(shard: Shard | ReplicaShard, ranges: bool = True) -> str | None:
    """The first thing wrong with a shard, in a few words; None where nothing is.

    ranges   look at the values too, which reads every index: O(edges)
    """
    return _first(_faults(shard, ranges))


def _first(faults):
    return next((found for found in faults if found), None)


def _faults(shard: Shard | ReplicaShard, ranges: bool):
    """What each check found, or None, in order. Lengths are checked before the values that they bound."""
    yield _vector(shard, "sizes", None, WHOLE)
    workers, classes = len(shard.sizes), shard.num_classes
    yield None if isinstance(classes, int) and classes > 1 else f"num_classes is {classes}"
    yield None if isinstance(shard.symmetric, bool) else f"symmetric is {shard.symmetric}"
    yield None if 0 <= shard.rank < workers else f"its rank is {shard.rank} of {workers}"
    own = int(shard.sizes[shard.rank])
    yield _vector(shard, "split_counts", 3, WHOLE)
    multilabel = shard.labels.ndim == 2
    wanted = (own, classes) if multilabel else (own,)
    if shard.labels.shape != wanted or shard.labels.dtype != (np.uint8 if multilabel else np.int32):
        yield f"labels has type {shard.labels.dtype} and shape {shard.labels.shape}"
    for name in ("train", "val", "test"):
        yield _vector(shard, name, own, "b")
    if ranges:
        yield None if (shard.sizes >= 0).all() else "sizes has numbers below 0"
        yield _range(shard, "labels", 0 if multilabel else -1, 2 if multilabel else classes)
    rows = yield from _edge_cut(shard, ranges) if isinstance(shard, Shard) else _vertex_cut(shard, ranges)
    features = shard.features
    if isinstance(features, Csr):
        yield _block(shard, "features", rows, features.num_columns, ranges)
    elif features.ndim != 2 or len(features) != rows or features.dtype != np.float32:
        yield f"features has type {features.dtype} and shape {features.shape}"


def _edge_cut(shard: Shard, ranges: bool):
    own, all_vertices = int(shard.sizes[shard.rank]), shard.num_vertices
    yield _vector(shard, "inner", own, WHOLE)
    yield _vector(shard, "degrees", own, DEGREES)
    yield _counted(shard, "send_counts", "send_rows")
    yield _block(shard, "inner_edges", own, own, ranges)
    for out in ("",) if shard.symmetric else ("", "out_"):
        halo, counts = f"{out}halo", f"{out}halo_counts"
        yield _counted(shard, counts, halo)
        size = len(getattr(shard, halo))
        yield _vector(shard, f"{out}halo_rows", size, WHOLE)
        yield _vector(shard, f"{out}halo_degrees", size, DEGREES)
        yield _block(shard, f"{out}halo_edges", own, size, ranges)
        if ranges:
            yield _range(shard, halo, 0, all_vertices)
            # The row of a halo vertex is below the number of vertices that its owner has.
            owners = np.repeat(shard.sizes, getattr(shard, counts))
            yield _range(shard, f"{out}halo_rows", 0, owners)
            yield _range(shard, f"{out}halo_degrees", 0, None)
    if not shard.symmetric:
        yield _block(shard, "out_inner_edges", own, own, ranges)
    if ranges:
        yield _range(shard, "inner", 0, all_vertices)
        yield _range(shard, "send_rows", 0, own)
        yield _range(shard, "degrees", 0, None)
    return own


def _vertex_cut(shard: ReplicaShard, ranges: bool):
    own, replicas = int(shard.sizes[shard.rank]), len(shard.vertices)
    yield _vector(shard, "vertices", None, WHOLE)
    yield _vector(shard, "degrees", replicas, DEGREES)
    yield _counted(shard, "mirror_counts", "mirror_rows")
    yield _counted(shard, "copy_counts", "copy_rows")
    if own + len(shard.mirror_rows) != replicas:
        yield f"{own} masters and {len(shard.mirror_rows)} mirrors are not its {replicas} vertices"
    yield _block(shard, "edges", replicas, replicas, ranges)
    if ranges:
        yield _range(shard, "vertices", 0, shard.num_vertices)
        yield _range(shard, "copy_rows", 0, own)
        yield _range(shard, "mirror_rows", 0, np.repeat(shard.sizes, shard.mirror_counts))
        yield _range(shard, "degrees", 0, None)
    return replicas


def _vector(shard, name: str, length: int | None, kinds: str) -> str | None:
    array = getattr(shard, name)
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
        return f"{name} is not a list of numbers of its type"
    return (
        None if length is None or len(array) == length else f"{name} has {len(array)} entries, not {length}"
    )


def _counted(shard, counts: str, name: str) -> str | None:
    """The fault unless `counts`, one number of 0 or more per worker, add up to the length of `name`."""
    found = _vector(shard, counts, len(shard.sizes), WHOLE) or _vector(shard, name, None, WHOLE)
    numbers = getattr(shard, counts)
    if found is None and ((numbers < 0).any() or numbers.sum() != len(getattr(shard, name))):
        found = f"{counts} does not add up to the {len(getattr(shard, name))} entries of {name}"
    return found


def _block(shard, name: str, rows: int, columns: int, ranges: bool) -> str | None:
    """The fault unless a block of compressed rows has this shape, and each of its indices is a column."""
    block = getattr(shard, name)
    if not isinstance(block, Csr):
        return f"it holds no {name}"
    indptr, indices, values = block.indptr, block.indices, block.values
    if (
        (*(indptr.ndim, indices.ndim, block.num_rows, block.num_columns),) != (1, 1, rows, columns)
        or indptr.dtype.kind not in WHOLE
        or indices.dtype.kind not in WHOLE
    ):
        return f"{name} is not a block of {rows} rows and {columns} columns"
    if values is not None and (values.shape != indices.shape or values.dtype != np.float32):
        return f"{name} has values of type {values.dtype} and shape {values.shape}"
    if not ranges:
        return None
    if indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        return f"the rows of {name} do not rise from 0 to {len(indices)}"
    if len(indices) and not 0 <= indices.min() <= indices.max() < columns:
        return f"{name} has a column that is none of its {columns}"
    signed = name == "features"
    if values is not None and not (np.isfinite(values).all() and (signed or values.min(initial=0) >= 0)):
        return f"{name} has a weight that is not a number of 0 or more"
    return None


def _range(shard, name: str, low: int, high: int | np.ndarray | None) -> str | None:
    """The fault unless every number of an array is in [low, high). `high` may be one bound per entry; None is
    infinity."""
    array = getattr(shard, name)
    bound = np.inf if high is None else high
    return None if ((low <= array) & (array < bound)).all() else f"{name} has a number that is out of range"
