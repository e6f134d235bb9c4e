"""What one worker holds of a partition: `Shard` of an edge-cut, `ReplicaShard` of a vertex-cut.

Notation: P workers; n inner and m halo vertices of this worker. The *halo* is the set of remote vertices with
an edge into an inner vertex. Local columns are numbered inside their block: inner 0..n-1, halo 0..m-1. Of a
vertex-cut: n masters and m mirrors, r = n + m replicas."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np


@dataclass
class Csr:
    """A sparse block in compressed rows: `indices[indptr[i]:indptr[i+1]]` are the columns of row i."""

    indptr: np.ndarray  # [rows + 1] int32, int64 from 2^31 entries on
    indices: np.ndarray  # [entries] int32
    num_columns: int
    # [entries] float32, of edges their weights; None where all are 1
    values: np.ndarray | None = None

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_entries(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_rows, self.num_columns

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32) if self.values is None else self.values.dtype

    @property
    def nbytes(self) -> int:
        parts = (self.indptr, self.indices, self.values)
        return sum(part.nbytes for part in parts if part is not None)

    def __len__(self) -> int:
        return self.num_rows

    def emptied(self, num_columns: int) -> Csr:
        """A block of as many rows and `num_columns` columns, without entries."""
        return Csr(np.zeros_like(self.indptr), self.indices[:0], num_columns)

    def new_zeros(self, rows: int, num_columns: int) -> Csr:
        """A block [rows, num_columns] without entries, of this one's types."""
        values = None if self.values is None else self.values[:0]
        return Csr(np.zeros(rows + 1, self.indptr.dtype), self.indices[:0], num_columns, values)

    def entries(self) -> np.ndarray:
        """[entries] the values, also where they are not stored because all are 1."""
        return np.ones(self.num_entries, np.float32) if self.values is None else self.values

    def rows(self, ids: np.ndarray | slice) -> Csr:
        """The rows that an array would give for `ids`: numbers in any order, a mask, or a slice."""
        ids = np.arange(self.num_rows)[ids]
        starts, counts = self.indptr[ids].astype(np.int64), np.diff(self.indptr)[ids]
        indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        place = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], counts)
        values = None if self.values is None else self.values[place]
        return Csr(indptr.astype(self.indptr.dtype), self.indices[place], self.num_columns, values)

    def dense(self) -> np.ndarray:
        """[rows, num_columns]: the block as an array, if no row has two entries in one column."""
        table = np.zeros(self.shape, self.dtype)
        table[np.repeat(np.arange(self.num_rows), np.diff(self.indptr)), self.indices] = self.entries()
        return table

    def __getitem__(self, ids: np.ndarray | slice) -> np.ndarray:
        """[k, num_columns]: the rows `ids`, as an array."""
        return self.rows(ids).dense()

    def astype(self, dtype: np.typing.DTypeLike, copy: bool = True) -> Csr:
        """The block with values of another type. Index arrays are shared, not copied."""
        return Csr(self.indptr, self.indices, self.num_columns, self.entries().astype(dtype, copy=copy))

    def row_sums(self) -> np.ndarray:
        """[rows] the sums of the values, float64; the numbers of entries where all values are 1."""
        counts = np.diff(self.indptr)
        if self.values is None:
            return counts
        return np.bincount(
            np.repeat(np.arange(self.num_rows), counts), weights=self.values, minlength=self.num_rows
        )


Table = np.ndarray | Csr  # features [rows, F] float32; compressed where the table is large and mostly 0


def rows_of(table: Table, ids: np.ndarray) -> Table:
    """The rows `ids` [k], kept as the table is."""
    return table.rows(ids) if isinstance(table, Csr) else table[ids]


@dataclass
class OutEdges:
    """The edges that leave a worker's inner vertices: rows v, columns w for edges v -> w."""

    inner_edges: Csr  # [n, n]: v's inner out-neighbours
    halo: np.ndarray  # [m'] int32 global ids, grouped by owner ascending, ascending inside an owner
    halo_counts: np.ndarray  # [P] int64: halo vertices owned by each worker
    halo_rows: np.ndarray  # [m'] int32: the halo vertices' local inner rows at their owners
    halo_degrees: np.ndarray  # [m'] global in-degrees
    halo_edges: Csr  # [n, m']


@dataclass
class AnyShard:
    """Worker `rank`'s part of a graph of `sizes.sum()` vertices on `len(sizes)` workers.

    n is the number of vertices that the worker owns (inner vertices, or masters), and k the number that it
    has rows of: n in an edge-cut, r in a vertex-cut. Self-loops are in no block: the propagation operator
    adds each vertex to itself where its normalisation asks for it."""

    cut: ClassVar[str] = ""  # "edge" or "vertex"

    rank: int
    graph_name: str
    sizes: np.ndarray  # [P] int64: vertices that every worker owns; they add up to V
    num_classes: int
    symmetric: bool  # of the whole graph

    features: Table  # [k, F] float32
    labels: np.ndarray  # [n] int32 (-1: none) or [n, C] uint8
    train: np.ndarray  # [n] bool
    val: np.ndarray  # [n] bool
    test: np.ndarray  # [n] bool
    # [k] int32 global in-degrees without self-loops; of a weighted graph float64, the sums of the weights of
    # in-edges. Every other field of degrees is of the same kind
    degrees: np.ndarray
    split_counts: np.ndarray  # [3] int64: train, val, test vertices of the whole graph

    @property
    def num_workers(self) -> int:
        return len(self.sizes)

    @property
    def num_vertices(self) -> int:
        return int(self.sizes.sum())

    @property
    def weighted(self) -> bool:
        """Whether the whole graph has edge weights."""
        return self.degrees.dtype.kind == "f"


@dataclass
class Shard(AnyShard):
    """A worker's part of an edge-cut: every array is indexed by local inner row unless its name says
    otherwise."""

    cut: ClassVar[str] = "edge"

    inner: np.ndarray  # [n] int32 global ids, ascending

    halo: np.ndarray  # [m] int32 global ids, grouped by owner ascending, ascending inside an owner
    halo_counts: np.ndarray  # [P] int64: halo vertices owned by each worker (0 for this one)
    halo_rows: np.ndarray  # [m] int32: the halo vertex's local inner row at its owner
    halo_degrees: np.ndarray  # [m] int32 global in-degrees without self-loops
    # [s] int32 local inner rows that are in a peer's halo, in that peer's halo order, by peer
    send_rows: np.ndarray
    send_counts: np.ndarray  # [P] int64: rows sent to each peer

    inner_edges: Csr  # [n, n]: in-edges from inner vertices
    halo_edges: Csr  # [n, m]: in-edges from halo vertices

    # The fields of `outward` on a graph that is not symmetric. On a symmetric one these are None, since
    # out-edges are the in-edges above.
    out_inner_edges: Csr | None = None
    out_halo: np.ndarray | None = None
    out_halo_counts: np.ndarray | None = None
    out_halo_rows: np.ndarray | None = None
    out_halo_degrees: np.ndarray | None = None
    out_halo_edges: Csr | None = None

    @property
    def outward(self) -> OutEdges:
        """Out-edges, which a backward pass by broadcast needs."""
        stored = "" if self.symmetric else "out_"
        return OutEdges(*(getattr(self, stored + field.name) for field in fields(OutEdges)))

    @property
    def num_inner(self) -> int:
        return len(self.inner)

    @property
    def num_halo(self) -> int:
        return len(self.halo)


@dataclass
class ReplicaShard(AnyShard):
    """A worker's part of a vertex-cut: a replica of every vertex that one of the worker's edges touches, and
    of those vertices without edges that were given to the worker.

    A vertex's *master* is one of its replicas; the others are *mirrors*. Masters come first, then mirrors.
    Both directions of an undirected edge are on one worker. On a symmetric graph `edges` is symmetric too."""

    cut: ClassVar[str] = "vertex"

    # [r] int32 global ids: masters ascending, then mirrors by their master's worker, ascending inside one
    vertices: np.ndarray

    mirror_counts: np.ndarray  # [P] int64: mirrors here whose master is on each worker (0 for this one)
    mirror_rows: np.ndarray  # [m] int32: the row of each mirror's master, at the master's worker
    # [s] int32: for every mirror elsewhere whose master is here, that master's local row; by the mirror's
    # worker, in the order that the mirrors have there
    copy_rows: np.ndarray
    copy_counts: np.ndarray  # [P] int64: mirrors that each worker holds of masters here

    edges: Csr  # [r, r]: the worker's own edges as in-edges of its replicas

    @property
    def num_masters(self) -> int:
        return len(self.labels)

    @property
    def num_replicas(self) -> int:
        return len(self.vertices)
