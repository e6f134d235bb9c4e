"""The one graph every system trains on: CSR of in-edges, features, labels, splits; validated once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from harness.base.errors import InputError
from harness.data import csr
from harness.data.partition.shard import Csr, Table

CLASSES = 1 << 16  # classes that a graph of fewer vertices may still have


@dataclass(frozen=True)
class Graph:
    """A vertex-classification graph.

    name         what tables call it; a twin's begins with "twin/"
    indptr       [V+1] int32 (int64 from 2^31 edges on): row v of the CSR holds v's in-neighbours
    indices      [E] int32, ascending and without repeats inside a row; edge u -> v is `u` in row v.
                 Self-loops may be present: the propagation operator drops them and adds each vertex once.
    features     [V, F] float32: an array, or compressed rows (`Csr`) where the table is large and mostly 0
    labels       [V] int32, -1 where a vertex has none; or [V, C] uint8 of 0 and 1 (multi-label)
    num_classes  C
    train, val, test   [V] bool, disjoint
    symmetric    edge u -> v present, with the same weight, exactly when v -> u is (an undirected graph holds
                 both)
    weights      [E] float32 of 0 or more, one per entry of indices; None where all are 1. A self-loop that is
                 dropped takes its weight along: the one that GCN adds weighs 1
    """

    name: str
    indptr: np.ndarray
    indices: np.ndarray
    features: Table
    labels: np.ndarray
    num_classes: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    symmetric: bool
    weights: np.ndarray | None = None

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Directed edges: an undirected edge counts twice."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2

    def in_degrees(self) -> np.ndarray:
        """[V] in-degrees without self-loops, int64; with weights the sums of the in-edges' weights, float64.

        This is the degree every normalisation here is built on."""
        rows = np.repeat(np.arange(self.num_vertices, dtype=np.int32), np.diff(self.indptr))
        if self.weights is not None:
            weights = np.where(rows == self.indices, 0, self.weights)
            return np.bincount(rows, weights=weights, minlength=self.num_vertices)
        loops = np.bincount(rows[rows == self.indices], minlength=self.num_vertices)
        return np.diff(self.indptr).astype(np.int64) - loops

    def replace(self, **changes) -> Graph:
        return dataclasses.replace(self, **changes)


def validate(graph: Graph) -> Graph:
    """Raise InputError with one sentence at the first thing wrong; return the graph when nothing is."""
    if (fault := next(_faults(graph), None)) is not None:
        raise InputError(f"{graph.name}: {fault}")
    return graph


def _faults(graph: Graph) -> Iterator[str]:
    """A sentence for each thing that is wrong with a graph, and what to do. A check may rely on what the
    checks before it have established, so only the first sentence is sure."""
    yield from _no_arrays(graph)
    n, edges = graph.num_vertices, graph.num_edges
    if n < 1:
        yield "the graph has no vertices"
    if graph.indptr[0] != 0 or graph.indptr[-1] != edges or np.any(np.diff(graph.indptr) < 0):
        yield f"indptr must rise from 0 to the number of edges ({edges})"
    if edges and (graph.indices.min() < 0 or graph.indices.max() >= n):
        bad = graph.indices[(graph.indices < 0) | (graph.indices >= n)][0]
        yield f"edge endpoint {bad} is not a vertex; vertices are 0 to {n - 1}"
    if not csr.rows_ascend(graph.indptr, graph.indices):
        mend = "build the rows with harness.data.csr"
        yield f"the in-neighbours of a vertex are out of order or repeated; {mend}"
    if (weights := graph.weights) is not None:
        if weights.shape != (edges,) or weights.dtype != np.float32:
            found = f"weights has type {weights.dtype} and shape {weights.shape}"
            yield f"{found}; give one float32 per edge ({edges})"
        if not (np.isfinite(weights) & (weights >= 0)).all():
            yield "weights hold NaN, infinity or numbers below 0; give finite ones of 0 or more"
    if len(graph.features.shape) != 2 or graph.features.shape[1] < 1:
        yield f"features has shape {graph.features.shape}; give [vertices, dimension]"
    wanted = {
        "features": np.float32,
        "labels": np.uint8 if graph.multilabel else np.int32,
        **dict.fromkeys(("train", "val", "test"), np.bool_),
    }
    for field in wanted:
        if (rows := len(getattr(graph, field))) != n:
            yield f"{field} has {rows} rows for {n} vertices; give one per vertex"
    for field, dtype in wanted.items():
        if (found := getattr(graph, field).dtype) != dtype:
            yield f"{field} holds {found}; convert it to {np.dtype(dtype)}"
    if isinstance(graph.features, Csr) and not _ascends(graph.features):
        yield (
            f"features are no compressed rows of columns 0 to {graph.num_features - 1}, each row ascending;"
            " build them with harness.data.csr.sparse_rows"
        )
    if (vertex := _not_finite(graph.features)) is not None:
        yield f"features of vertex {vertex} hold NaN or infinity; clean them first"
    classes = graph.num_classes
    if classes > max(n, CLASSES):
        costs = f"num_classes={classes} for {n} vertices costs a column of weights each"
        yield f"{costs}; give one more than the largest label"
    if classes < 2:
        yield f"num_classes={classes}; classification needs 2 or more"
    if graph.multilabel:
        if graph.labels.shape[1] != classes or graph.labels.max(initial=0) > 1:
            yield f"multi-label labels must be 0 or 1 in [vertices, {classes}]"
    else:
        low, high = int(graph.labels.min()), int(graph.labels.max())
        if low < -1 or high >= classes:
            odd = low if low < -1 else high
            yield f"label {odd} is out of range; classes are 0 to {classes - 1}, -1 for none"
    overlap = (graph.train & graph.val) | (graph.train & graph.test) | (graph.val & graph.test)
    if overlap.any():
        vertex = int(np.argmax(overlap))
        yield f"vertex {vertex} is in two of train, val and test; give each vertex one split"
    if not graph.train.any():
        yield "no vertex is in train; mark at least one"
    split = graph.train | graph.val | graph.test
    if not graph.multilabel and (graph.labels[split] < 0).any():
        vertex = int(np.argmax(split & (graph.labels < 0)))
        yield f"vertex {vertex} is in a split but has no label; leave it out of train, val and test"


def _no_arrays(graph: Graph) -> Iterator[str]:
    """A sentence for each field that is of another type than it has to be, or that is no array, has another
    number of dimensions, or no type of index."""
    for field, kind in (("name", str), ("symmetric", bool), ("num_classes", int)):
        if type(value := getattr(graph, field)) is not kind:
            yield f"{field}={value!r} is a {type(value).__name__}; give a {kind.__name__}"
    if not isinstance(graph.features, Table):
        yield f"features is a {type(graph.features).__name__}; give a numpy array, or a Csr"
    for field in ("indptr", "indices", "labels", "train", "val", "test", "weights"):
        value, most = getattr(graph, field), 2 if field == "labels" else 1
        if field == "weights" and value is None:
            continue
        if not isinstance(value, np.ndarray) or not 1 <= value.ndim <= most:
            found = f"{field} is a {type(value).__name__} of shape {np.shape(value)}"
            yield f"{found}; give a numpy array of one {'or two dimensions' if most == 2 else 'dimension'}"
        if field in ("indptr", "indices") and not _is_index(value):
            yield f"{field} holds {value.dtype}; convert it to int32"
    if isinstance(features := graph.features, Csr):
        parts = (features.indptr, features.indices, features.entries())
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts) or not all(
            map(_is_index, parts[:2])
        ):
            yield "features are a Csr of other things than arrays; build it with harness.data.csr.sparse_rows"


def _is_index(values: np.ndarray) -> bool:
    return values.dtype.kind == "i" and values.dtype.isnative


def _ascends(rows: Csr) -> bool:
    """Whether `rows` are well-formed compressed rows, whose columns ascend and are all in range."""
    indptr, indices = rows.indptr, rows.indices
    fits = (
        indptr[0] == 0 and indptr[-1] == len(indices) == len(rows.entries()) and (np.diff(indptr) >= 0).all()
    )
    within = fits and (not len(indices) or 0 <= indices.min() <= indices.max() < rows.num_columns)
    return bool(within) and csr.rows_ascend(indptr, indices)


def _not_finite(features: Table) -> int | None:
    """The first vertex whose features are not all finite numbers."""
    if isinstance(features, Csr):
        finite = np.isfinite(features.entries())
        bad = int(np.argmin(finite)) if not finite.all() else None
        return None if bad is None else int(np.searchsorted(features.indptr, bad, side="right")) - 1
    # A blockwise look keeps the temporary small on graphs whose features fill half the memory.
    for start in range(0, len(features), 65536):
        finite = np.isfinite(features[start : start + 65536]).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None
