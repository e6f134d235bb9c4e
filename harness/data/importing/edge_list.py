"""An edge list (CSV, TSV or spaces) with tables of features and labels."""

from pathlib import Path

import numpy as np

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.data.importing import text, vertices
from harness.data.importing.imported import ImportedGraph

ENDS = (
    "source", "src", "from", "fromnodeid", "u", "head", "target", "dst", "to", "tonodeid", "v", "tail",
    "node1",
)  # fmt: skip


def read(edges: Path, features: Path, labels: Path | None, *, header: bool | None, **how) -> ImportedGraph:
    """Edges in lines of source, target and, where there is a third column, weight.

    `header` and `how` are arguments of `vertices.read`. Raises InputError with file and line."""
    table = text.read(edges, header, ENDS, numeric_from=2)
    width = table.cells.shape[1]
    if width not in (2, 3):
        raise InputError(
            f'file "{edges}" has {counted(width, "column")}: give source, target and, where edges have one,'
            " a weight"
        )
    found = vertices.read(features, labels, header=header, **how)
    ends = vertices.endpoints(found, table)
    alone = len(found.ids) - len(np.unique(ends))
    assumed = {"files": f"{edges}: {_first_line(table)}; {len(found.ids)} vertices from {features}"}
    if alone:
        assumed["isolated"] = f"{alone} vertices are in no edge"
    return ImportedGraph(
        source=edges,
        edges=ends,
        features=found.features,
        labels=found.labels,
        weights=_weights(table) if width == 3 else None,
        masks=found.masks,
        undirected=True,
        vertex_ids=found.vertex_ids,
        class_names=found.class_names,
        assumed=assumed,
        tables=[features, *([labels] if labels else [])],
    )


def _weights(table: text.Table) -> np.ndarray:
    weights = table.numbers([2])[:, 0]
    if (weights < 0).any():
        row = int(np.argmax(weights < 0))
        raise table.refuse(row, f"weight {table.cells[row, 2]} is negative: give 0 or more")
    return weights


def _first_line(table: text.Table) -> str:
    if table.names:
        return f"line {table.first} names its columns ({', '.join(table.names)})"
    return f"line {table.first} taken as an edge"
