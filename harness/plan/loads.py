"""What each worker has of a run, layer by layer: the sizes that memory and seconds follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.core.order import Order, Passes, Shape
from harness.core.system import AnySystem
from harness.core.traffic import Parts
from harness.partition.shard import ReplicaShard, Shard
from harness.plan.sizes import AnyShard


@dataclass(frozen=True)
class Layer:
    """By worker [P]: rows that a layer takes and gives, halo rows that arrive and own rows that leave, and
    entries of the propagation matrix over own and over halo rows."""

    taken: np.ndarray
    given: np.ndarray
    halo: np.ndarray
    sent: np.ndarray
    inner_entries: np.ndarray
    halo_entries: np.ndarray


@dataclass(frozen=True)
class Loads:
    """layers, and by worker [P]: vertices, those that the whole graph has in the worker's halo (`halo`) and
    entries over them, training vertices, and values of the features that are not 0.

    symmetric   whether the transposed blocks need no memory of their own
    local       whether cut edges are dropped
    """

    layers: list[Layer]
    vertices: np.ndarray
    halo: np.ndarray
    sent: np.ndarray
    inner_entries: np.ndarray
    halo_entries: np.ndarray
    train: np.ndarray
    nonzero: np.ndarray
    widths: list[int]
    symmetric: bool
    local: bool

    @property
    def workers(self) -> int:
        return len(self.vertices)


def loads_of(shards: Sequence[AnyShard], parts: Parts, system: AnySystem) -> Loads:
    vertices, sent = parts.vertices.astype(float), parts.rows[0].sum(1).astype(float)
    first = shards[0]
    train = np.array([float(shard.train.sum()) for shard in shards])
    nonzero = np.array([float(np.count_nonzero(shard.features)) for shard in shards])
    if isinstance(first, ReplicaShard):
        replicas = [shard for shard in shards if isinstance(shard, ReplicaShard)]
        rows = np.array([float(shard.num_replicas) for shard in replicas])
        entries = np.array([float(shard.edges.num_entries) for shard in replicas])
        none, mirrors = np.zeros(len(shards)), rows - vertices
        whole = Layer(rows, rows, mirrors, sent, entries, none)
        return Loads(
            [whole] * parts.layers, vertices, mirrors, sent, entries, none, train, nonzero,
            parts.widths, first.symmetric, False,
        )  # fmt: skip
    local = system.degrees == "local"
    halo = parts.rows[0].sum(0).astype(float) if parts.kept is None else _halos(parts.shards)
    inner = np.array([float(shard.inner_edges.num_entries) for shard in parts.shards])
    remote = np.array([float(shard.halo_edges.num_entries) for shard in parts.shards])
    layers = [_layer(parts, number, local) for number in range(parts.layers)]
    return Loads(
        layers, vertices, halo, sent, inner, remote, train, nonzero, parts.widths, first.symmetric, local
    )  # fmt: skip


def _halos(shards: Sequence[Shard]) -> np.ndarray:
    return np.array([float(shard.num_halo) for shard in shards])


def _layer(parts: Parts, number: int, local: bool) -> Layer:
    rows = parts.rows[number]
    found = []
    for shard in parts.shards:
        given = np.ones(shard.num_inner, bool) if parts.kept is None else parts.kept[number][shard.rank]
        taken = shard.num_inner
        if parts.kept is not None and number:
            taken = int(parts.kept[number - 1][shard.rank].sum())
        entries = [int(np.diff(block.indptr)[given].sum()) for block in (shard.inner_edges, shard.halo_edges)]
        found.append((taken, int(given.sum()), *entries))
    taken, given, inner, remote = np.array(found, float).T
    if local:
        none = np.zeros(parts.workers)
        return Layer(taken, given, none, none, inner, none)
    return Layer(taken, given, rows.sum(0).astype(float), rows.sum(1).astype(float), inner, remote)


def transforms_first(loads: Loads, layer: int, worker: int, passes: Passes, order: Order) -> bool:
    """Whether X W is taken before A is applied, as `Propagation.transform_first` decides it."""
    of = loads.layers[layer]
    blocks = [Shape(int(of.given[worker]), int(of.taken[worker]), int(of.inner_entries[worker]))]
    if of.halo_entries[worker]:
        blocks.append(Shape(int(of.given[worker]), int(of.halo[worker]), int(of.halo_entries[worker])))
    more = int(of.taken[worker] + (of.halo[worker] if of.halo_entries[worker] else 0) - of.given[worker])
    f_in, f_out = loads.widths[layer : layer + 2]
    return order.transform_first(blocks, int(of.given[worker]), more, f_in, f_out, passes)


def sparse_features(loads: Loads, worker: int, given: np.ndarray | None = None) -> bool:
    """Whether a worker on the CPU keeps its features sparse (`harness.core.features.saves`), halo rows taken
    to be as full as own ones.

    given   [P] rows of A X; None: those that layer 0 gives in training
    """
    given = loads.layers[0].given if given is None else given
    n, m = loads.layers[0].taken[worker], loads.layers[0].halo[worker]
    nonzero = loads.nonzero[worker] * (1 + m / max(n, 1))
    entries = loads.layers[0].inner_entries[worker] + loads.layers[0].halo_entries[worker]
    return bool(2 * (nonzero + entries) < given[worker] * loads.widths[0])
