"""What workers hand to the transport in an epoch, from the sizes of a partition alone.

`System.traffic` says before anything runs what a trace counts afterwards. Bytes are matrices [P, P + 1]: row
k is what worker k counts, column p what it counts towards worker p, and the last column what it counts
towards a store or a server. Where only training can tell, they are a range.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch

from harness.comm.sparse import encoded
from harness.partition.shard import Csr, Shard

Key = tuple[int, str, str]  # layer (-1: none), direction, purpose: as a trace counts them
FLOAT = 4
T = TypeVar("T")


class Traffic:
    """Bytes by key, between a least and a most; both are the same where they are known.

    route   by key: how they travel (`harness.comm.recorder.Route`)
    ahead   keys of what is waited for in the next epoch
    """

    def __init__(self, workers: int):
        self.workers = workers
        self.route: dict[Key, str] = {}
        self.ahead: set[Key] = set()
        self.least: dict[Key, np.ndarray] = {}
        self.most: dict[Key, np.ndarray] = {}

    def add(
        self,
        layer: int,
        direction: str,
        purpose: str,
        least: np.ndarray,
        most: np.ndarray | None = None,
        *,
        route: str = "pairs",
        ahead: bool = False,
    ) -> None:
        """Add bytes [P, P], or [P, P + 1] with those towards a store. One worker alone sends nothing."""
        key = layer, direction, purpose
        self.route[key] = route
        if ahead:
            self.ahead.add(key)
        for kept, given in ((self.least, least), (self.most, least if most is None else most)):
            whole = np.zeros((self.workers, self.workers + 1))
            if self.workers > 1:
                whole[:, : given.shape[1]] = given
            kept[key] = kept.get(key, 0) + whole

    def join(self, other: Traffic, times: int = 1) -> None:
        """Add another's, so many times."""
        for key in other.least:
            least, most = times * other.least[key], times * other.most[key]
            self.add(*key, least, most, route=other.route[key], ahead=key in other.ahead)

    @property
    def exact(self) -> bool:
        return all(np.array_equal(self.least[key], self.most[key]) for key in self.least)

    def total(self) -> tuple[float, float]:
        """Bytes of all workers: the least and the most."""
        least, most = (float(sum(each.sum() for each in kept.values())) for kept in (self.least, self.most))
        return least, most


def all_reduced(workers: int, size: int) -> np.ndarray:
    """[P, P] bytes of an all-reduce of `size` bytes, as `Comm.all_reduce` counts it: 2 (P - 1) size in all,
    each worker's share towards the next."""
    whole, made = 2 * (workers - 1) * size, np.zeros((workers, workers))
    for k in range(workers):
        made[k, (k + 1) % workers] = whole // workers + (k < whole % workers)
    return made


def to_all(sizes: Sequence[float] | np.ndarray) -> np.ndarray:
    """[P, P] bytes of a message of sizes[k] from each worker k to every other."""
    made = np.repeat(np.asarray(sizes, float)[:, None], len(sizes), 1)
    np.fill_diagonal(made, 0)
    return made


@dataclass
class Parts:
    """What the bytes of a run follow from: its partition, its model, and what the run asks for.

    vertices   [P] of each worker (its masters, of a vertex-cut)
    rows       by layer: [P, P] rows that worker k sends to worker p in an exchange of that layer's halo;
               those that the loss needs under rows=needed. Of a vertex-cut: mirrors at p of masters at k
    widths     [L + 1] features, hidden layers, classes
    weights    bytes of a combination of gradients (`Combine.traffic`)
    summed     bytes of an exact sum of all the model's parameters
    value      bytes per value of a row on its way: 4, or 2 under wire=bfloat16
    features_wire   how features that are fetched once travel
    shards     the workers' shards of an edge-cut; none of a vertex-cut
    kept       by layer and worker: [n] bool, which own rows the layer gives; None: all
    epochs     of the whole run
    matrix     whether the model's layers are of the form A H W
    single_label   whether every vertex has one label
    found      what `once` keeps
    """

    vertices: np.ndarray
    rows: list[np.ndarray]
    widths: list[int]
    weights: Traffic
    summed: Traffic
    value: int = FLOAT
    features_wire: str = "dense"
    shards: Sequence[Shard] = ()
    kept: list[list[np.ndarray]] | None = None
    epochs: int = 1
    matrix: bool = True
    single_label: bool = True
    found: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        return len(self.vertices)

    @property
    def layers(self) -> int:
        return len(self.widths) - 1

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, asked once for each key: for what takes long and is alike in all epochs."""
        if key not in self.found:
            self.found[key] = make()
        found: T = self.found[key]
        return found

    def cut_edges(self, layer: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """By worker: (row, place in its halo) of every edge from another worker's vertex that the layer
        aggregates, rows ascending."""
        return (self._cut_edges(shard, layer) for shard in self.shards)

    def _cut_edges(self, shard: Shard, layer: int) -> tuple[np.ndarray, np.ndarray]:
        block: Csr = shard.halo_edges
        lengths = np.diff(block.indptr)
        row = np.repeat(np.arange(block.num_rows), lengths)
        if self.kept is None:
            return row, np.asarray(block.indices)
        given = self.kept[layer][shard.rank][row]
        return row[given], np.asarray(block.indices)[given]


def with_weights(parts: Parts) -> Traffic:
    """The traffic of a system that sends gradients of weights, once per epoch, and nothing else."""
    made = Traffic(parts.workers)
    made.join(parts.weights)
    return made


def fetch_once(made: Traffic, parts: Parts, blocks: bool = False, rows: np.ndarray | None = None) -> None:
    """Add what fetching features exactly takes, of purpose "features": those of the halo, of whole `blocks`,
    or so many `rows` [P, P] of what nobody knows the zeros of."""
    count = to_all(parts.vertices) if blocks else parts.rows[0] if rows is None else rows
    dense = count * parts.widths[0] * parts.value
    if parts.features_wire == "dense":
        made.add(0, "forward", "features", dense, route="broadcast" if blocks else "pairs")
        return
    made.add(0, "forward", "lengths", to_all([8] * parts.workers))
    if rows is not None or parts.value != FLOAT:
        # A byte says the form. "sparse" may take an id of 4 bytes beside each value and for each row's count.
        ids = 4 * count * (parts.widths[0] + 1) if parts.features_wire == "sparse" else 0
        made.add(0, "forward", "features", (count > 0).astype(float), dense + (count > 0) + ids)
        return
    coded = parts.once("coded", lambda: np.array([_coded(shard, parts, blocks) for shard in parts.shards]))
    made.add(0, "forward", "features", coded)


def _coded(shard: Shard, parts: Parts, blocks: bool) -> list[int]:
    """Bytes of a worker's features for each other, coded."""
    x = torch.as_tensor(np.ascontiguousarray(shard.features, np.float32))
    others = [p for p in range(parts.workers) if p != shard.rank]
    sizes = [0] * parts.workers
    if blocks:
        whole = len(encoded(x, parts.features_wire)) if len(x) else 0
        return [whole if p in others else 0 for p in range(parts.workers)]
    sent = np.split(_sent(shard, parts), np.cumsum(parts.rows[0][shard.rank].astype(int))[:-1])
    for p in others:
        if len(sent[p]):
            sizes[p] = len(encoded(x[torch.from_numpy(sent[p].astype(np.int64))], parts.features_wire))
    return sizes


def _sent(shard: Shard, parts: Parts) -> np.ndarray:
    """The own rows that a worker sends of layer 0, by receiver."""
    if parts.kept is None:
        return np.asarray(shard.send_rows)
    rows = []
    for other in parts.shards:
        places = np.unique(parts._cut_edges(other, 0)[1])
        owner = np.repeat(np.arange(parts.workers), other.halo_counts)
        rows.append(np.asarray(other.halo_rows)[places[owner[places] == shard.rank]])
    return np.concatenate(rows)


def halo_exchanges(
    parts: Parts,
    epoch: int,
    features: str,
    *,
    row_bytes: Callable[[int], float] | None = None,
    rows: Sequence[np.ndarray] | None = None,
    ahead: bool = False,
) -> Traffic:
    """The traffic of a system that exchanges halo rows forward and their gradients backward, in each layer.

    row_bytes   of a row of a width; None: its values
    rows        by layer [P, P]; None: all of the halo
    ahead       whether what is sent is waited for in the next epoch
    """
    made = with_weights(parts)
    if features == "once" and epoch == 0:
        fetch_once(made, parts)
    for layer in range(1 if features == "once" else 0, parts.layers):
        width = parts.widths[layer]
        size = row_bytes(width) if row_bytes is not None else width * parts.value
        each = (parts.rows if rows is None else rows)[layer]
        made.add(layer, "forward", "halo", each * size, ahead=ahead)
        if layer:  # features need no gradient
            made.add(layer, "backward", "halo", each.T * size, ahead=ahead)
    return made
