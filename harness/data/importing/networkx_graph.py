"""Graphs that networkx reads without pickle: GraphML, GML, GEXF, node-link JSON and edge lists."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd

from harness.base.errors import InputError, did_you_mean
from harness.data.importing import vertices
from harness.data.importing.imported import ImportedGraph
from harness.data.importing.text import Table
from harness.data.raw import reading


def _json(path: Path) -> nx.Graph:
    stored = json.loads(path.read_text(encoding="utf-8"))
    return nx.node_link_graph(stored, edges="links" if "links" in stored else "edges")


READERS: dict[str, Callable[[Path], nx.Graph]] = {
    ".graphml": nx.read_graphml,
    ".gml": lambda path: nx.read_gml(path, label="label"),
    ".gexf": nx.read_gexf,
    ".json": _json,
    ".edgelist": nx.read_edgelist,
}


def read(
    path: Path,
    features: Path | None,
    labels: Path | None,
    *,
    label_column: str | None = None,
    split_column: str | None = None,
    drop: Sequence[str] = (),
    **how,
) -> ImportedGraph:
    """The graph in `path`, by its suffix.

    Features and labels are attributes of its vertices, or come from tables, as in `vertices.read`, where
    `features` is given."""
    if path.suffix not in READERS:
        raise InputError(
            f'file "{path}": suffix "{path.suffix}" is not known{did_you_mean(path.suffix, READERS)}'
        )
    if not path.is_file():
        raise InputError(f'file "{path}" is not there: give the path of a file')
    with reading(path):
        graph = READERS[path.suffix](path)
    names = [str(name) for name in graph.nodes]
    if not names:
        raise InputError(f'file "{path}" has no vertices: give a graph with some')
    edges = list(graph.edges(data="weight"))
    lacking = [weight is None for _, _, weight in edges]
    if any(lacking) and not all(lacking):
        u, v, _ = edges[lacking.index(True)]
        raise InputError(
            f'file "{path}": edge {u} - {v} has no weight and others have: give each one or none'
        )
    assumed = {}
    if features is not None:
        table = vertices.read(
            features, labels, label_column=label_column, split_column=split_column, drop=drop, **how
        )
        named = np.array([str(end) for u, v, _ in edges for end in (u, v)], dtype=np.str_)
        refuse = lambda end, what: InputError(f'file "{path}", edge {end // 2 + 1}: {what}')  # noqa: E731
        ends = vertices.endpoints(table, named, refuse)
    else:
        own = _attributes(path, graph, names)
        columns = list(range(own.cells.shape[1]))
        more = (label_column, split_column, drop, "--features FILE")
        table = vertices.described(own, pd.Index(names), columns, *more)
        number = {name: at for at, name in enumerate(graph.nodes)}
        ends = np.array([number[end] for u, v, _ in edges for end in (u, v)], dtype=np.int64)
        assumed["features"] = "the attributes of vertices but label and split"
    return ImportedGraph(
        source=path,
        edges=ends.reshape(-1, 2),
        features=table.features,
        labels=table.labels,
        weights=None if not edges or all(lacking) else _weights(path, edges),
        masks=table.masks,
        directed=graph.is_directed(),
        vertex_ids=table.vertex_ids,
        class_names=table.class_names,
        assumed=assumed,
    )


def _attributes(path: Path, graph: nx.Graph, vertex_names: list[str]) -> Table:
    """A row per vertex and a column per attribute; a list of numbers has a column for each of them."""
    names, columns = [], []
    for name in sorted({name for _, values in graph.nodes(data=True) for name in values}):
        values = (values.get(name, "") for _, values in graph.nodes(data=True))
        lists = [value if isinstance(value, list) else [value] for value in values]
        for column in itertools.zip_longest(*lists, fillvalue=""):
            names.append(str(name))
            columns.append(
                [str(int(value) if isinstance(value, bool) else value).strip() for value in column]
            )
    cells = np.array(columns, dtype=np.str_).reshape(len(names), len(vertex_names)).T
    return Table(path, cells, names, rows=[f'vertex "{name}"' for name in vertex_names])


def _weights(path: Path, edges: list[tuple[Any, Any, Any]]) -> np.ndarray:
    for u, v, weight in edges:
        if not isinstance(weight, (int, float)):
            raise InputError(
                f'file "{path}": edge {u} - {v} has weight "{weight}": give a number of 0 or more'
            )
    return np.array([weight for _, _, weight in edges], dtype=np.float64)
