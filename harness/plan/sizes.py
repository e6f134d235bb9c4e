"""The sizes that a plan goes by, of shards that are all on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from harness.core.combine import Combine, Exact
from harness.core.config import ModelConfig
from harness.core.models import Model
from harness.core.system import AnySystem
from harness.core.traffic import Parts, Traffic, all_reduced
from harness.partition.shard import Csr, ReplicaShard, Shard

AnyShard = Shard | ReplicaShard


@dataclass(frozen=True)
class Asked:
    """What a run asks for beside its system and model, as its config has it; None: the system's choice."""

    wire: str = "float32"
    rows: str | None = None
    features_wire: str | None = None
    combine: Combine | None = None
    epochs: int = 1


def parts_of(shards: Sequence[AnyShard], system: AnySystem, model: ModelConfig, asked: Asked) -> Parts:
    """The sizes that the bytes of a run over these shards follow from."""
    first = shards[0]
    widths = [first.features.shape[1]] + [model.hidden] * (model.layers - 1) + [first.num_classes]
    shapes = shapes_of(model, widths)
    combine = asked.combine or system.default_combine()
    weights = combine.traffic(shapes, len(shards))
    rows, kept = [halo_rows(shards)] * model.layers, None
    edge_cut = cast(Sequence[Shard], shards if isinstance(first, Shard) else ())
    if (asked.rows or system.default_rows) == "needed" and edge_cut:
        rows, kept = needed_rows(edge_cut, model.layers)
    summed = Exact().traffic(shapes, len(shards))
    return Parts(
        vertices=np.asarray(first.sizes, np.int64),
        rows=rows,
        widths=widths,
        weights=weights if weights is not None else summed,
        summed=summed,
        value=2 if asked.wire == "bfloat16" else 4,
        features_wire=asked.features_wire or system.default_features_wire,
        shards=edge_cut,
        kept=kept,
        epochs=asked.epochs,
        matrix=model.matrix,
        single_label=first.labels.ndim == 1,
    )


def shapes_of(model: ModelConfig, widths: list[int]) -> list[tuple[int, ...]]:
    """Of the model's parameters."""
    return [tuple(parameter.shape) for parameter in Model(model, widths, 0).parameters()]


def halo_rows(shards: Sequence[AnyShard]) -> np.ndarray:
    """[P, P] rows that the row's worker sends to the column's: of its vertices, those in the other's halo."""
    return np.stack([s.send_counts if isinstance(s, Shard) else s.copy_counts for s in shards]).astype(
        np.int64
    )


def needed_rows(shards: Sequence[Shard], layers: int) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """By layer: [P, P] remote rows that the loss needs, and by worker [n] which rows the layer gives; as
    `harness.core.needed` finds them, where workers tell each other."""
    workers = len(shards)
    depth = [np.where(shard.train, layers, -1) for shard in shards]  # the last set that a row is in
    owners = [np.repeat(np.arange(workers), shard.halo_counts) for shard in shards]
    rows: list[np.ndarray] = []
    kept: list[list[np.ndarray]] = []
    for layer in reversed(range(layers)):
        given = [own > layer for own in depth]
        taken = [_touched(shard.inner_edges, own) for shard, own in zip(shards, given)]
        counted = np.zeros((workers, workers), np.int64)
        for i, shard in enumerate(shards):
            remote = np.flatnonzero(_touched(shard.halo_edges, given[i]))
            counted[:, i] = np.bincount(owners[i][remote], minlength=workers)
            for j in range(workers):
                taken[j][shard.halo_rows[remote[owners[i][remote] == j]]] = True
        for own, wanted in zip(depth, taken):
            own[wanted & (own < 0)] = layer
        rows.append(counted)
        kept.append(given)
    return rows[::-1], kept[::-1]


def _touched(block: Csr, rows: np.ndarray) -> np.ndarray:
    """[columns] bool: the columns with an entry in one of `rows`."""
    found = np.zeros(block.num_columns, bool)
    found[block.indices[np.repeat(rows, np.diff(block.indptr))]] = True
    return found


def epoch_traffic(system: AnySystem, model: ModelConfig, parts: Parts, epoch: int) -> Traffic | None:
    """What all workers count in an epoch, what the model itself adds up included; None where only a run can
    tell."""
    made = system.traffic(parts, epoch)
    if made is not None and model.norm == "batch":
        for layer in range(parts.layers - 1):
            width = parts.widths[layer + 1]
            for direction, sizes in (("forward", (width + 1, width)), ("backward", (2 * width,))):
                for size in sizes:
                    made.add(
                        layer, direction, "batch_norm", all_reduced(parts.workers, 4 * size), route="ring"
                    )
    return made
