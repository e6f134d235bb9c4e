"""Graphs that networkx reads without pickle: GraphML, GML, GEXF, node-link JSON and edge lists."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from harness.check import InputError, did_you_mean
from harness.graph.raw import reading
from harness.importing import vertices
from harness.importing.found import Found
from harness.importing.vertices import LABEL, SPLIT


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
) -> Found:
    """The graph in `path`, by its suffix.

    Features and labels are attributes of its vertices, or come from tables, as in `vertices.read`, where
    `features` is given.
    """
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
        x, y, classes, masks, ids = (
            table.features,
            table.labels,
            table.class_names,
            table.masks,
            table.vertex_ids,
        )
    else:
        label, split = (
            _attribute(path, graph, asked, usual)
            for asked, usual in ((label_column, LABEL), (split_column, SPLIT))
        )
        if label is None:
            raise InputError(
                f'file "{path}": no attribute of vertices is named {LABEL[0]}: give --label-column NAME, or'
                " --features FILE"
            )
        x, used = _features(path, graph, {label, split, *drop})
        assumed["features"] = f"the attributes {', '.join(used)} of vertices"
        y, classes = vertices.classes(_text(graph, label))
        refuse = lambda at, what: InputError(f'file "{path}", vertex "{names[at]}": {what}')  # noqa: E731
        masks = {} if split is None else vertices.split_masks(_text(graph, split), refuse)
        number = {name: at for at, name in enumerate(graph.nodes)}
        ends = np.array([number[end] for u, v, _ in edges for end in (u, v)], dtype=np.int64)
        ids = None if names == [str(at) for at in range(len(names))] else names
    return Found(
        source=path,
        edges=ends.reshape(-1, 2),
        features=x,
        labels=y,
        weights=None if not edges or all(lacking) else _weights(path, edges),
        masks=masks,
        directed=graph.is_directed(),
        vertex_ids=ids,
        class_names=classes,
        assumed=assumed,
    )


def _attribute(path: Path, graph: nx.Graph, asked: str | None, usual: Sequence[str]) -> str | None:
    there = {name for _, values in graph.nodes(data=True) for name in values}
    if asked is not None and asked not in there:
        raise InputError(f'file "{path}": no vertex has an attribute "{asked}"{did_you_mean(asked, there)}')
    return asked or next((name for name in usual if name in there), None)


def _text(graph: nx.Graph, name: str) -> np.ndarray:
    return np.array(
        [str(values.get(name, "")).strip() for _, values in graph.nodes(data=True)], dtype=np.str_
    )


def _features(path: Path, graph: nx.Graph, others: set[str | None]) -> tuple[np.ndarray, list[str]]:
    """[V, F] float32 of all other attributes, numbers or lists of numbers, and their names."""
    used = sorted({name for _, values in graph.nodes(data=True) for name in values} - others)
    if not used:
        raise InputError(
            f'file "{path}": vertices have no attributes to use as features: give --features FILE'
        )
    rows = [
        [_numbers(path, vertex, name, values) for name in used] for vertex, values in graph.nodes(data=True)
    ]
    widths = [len(part) for part in rows[0]]
    for vertex, row in zip(graph.nodes, rows):
        for name, part, width in zip(used, row, widths):
            if len(part) != width:
                raise InputError(
                    f'file "{path}": attribute "{name}" of vertex "{vertex}" has {len(part)}'
                    " numbers where others have"
                    f" {width}: give all vertices the same"
                )
    return np.array([np.concatenate(row) for row in rows], dtype=np.float32), used


def _numbers(path: Path, vertex: Any, name: str, values: dict[str, Any]) -> list[float]:
    value = values.get(name)
    listed: list[Any] = value if isinstance(value, list) else [value]
    try:
        return [float(each) for each in listed]
    except (TypeError, ValueError):
        what = "is missing" if value is None else f'is "{value}"'
        raise InputError(
            f'file "{path}": attribute "{name}" of vertex "{vertex}" {what} where a number is'
            " wanted: give one, or"
            f" leave the attribute out with --drop {name}"
        ) from None


def _weights(path: Path, edges: list[tuple[Any, Any, Any]]) -> np.ndarray:
    for u, v, weight in edges:
        if not isinstance(weight, (int, float)):
            raise InputError(
                f'file "{path}": edge {u} - {v} has weight "{weight}": give a number of 0 or more'
            )
    return np.array([weight for _, _, weight in edges], dtype=np.float64)
