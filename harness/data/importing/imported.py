"""What every source returns, `ImportedGraph`; `write` checks it as training does, stores it as an npz and
sums it up in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.errors import InputError, writing
from harness.data.csr import InEdges, conflict, from_edges
from harness.data.graph import Graph
from harness.data.importing.text import is_number
from harness.data.npz import SPLITS
from harness.data.sources import Source

SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
SHOWN = 12  # class names in the summary


@dataclass
class ImportedGraph:
    """A graph as its source gives it.

    source    what it was read from
    tables    the files of its features, labels and split, where they are others than `source`
    edges     [E, 2] integers, source and target
    features  [V, F] numbers
    labels    [V] whole numbers, -1 or NaN for none; or [V, C] of 0 and 1
    weights   [E] numbers, or None
    masks     by split [V] or [K, V] bool; empty where the source has no split
    undirected   True: every edge is undirected. False: they are if every edge has its reverse, else directed
    vertex_ids   the source's names of the vertices, where they are not 0 to V - 1
    class_names  the source's names of the classes
    assumed   summary lines by topic: what was found and what was assumed
    """

    source: Path
    edges: np.ndarray
    features: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None = None
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    undirected: bool = False
    vertex_ids: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    assumed: dict[str, str] = field(default_factory=dict)
    tables: Sequence[Path] = ()


def write(found: ImportedGraph, path: Path, out: Path, directed: bool | None = None) -> list[str]:
    """Write `found` to `path` and return the summary's lines, in which the file is called `out`. `directed`
    overrules the source.

    Raises InputError where the graph could not be trained on, or the disk is full."""
    if found.edges.ndim != 2 or found.edges.shape[1] != 2 or found.edges.dtype.kind not in "iu":
        raise InputError(
            f'file "{found.source}": edges of type {found.edges.dtype} and shape {found.edges.shape} are no'
            " pairs of vertex numbers: give [edges, 2] integers"
        )
    # Errors name a file: those of the edges here, and those of all else by the reader that training uses.
    try:
        src, dst = found.edges.T
        listed = from_edges(src, dst, len(found.features), symmetrise=False, weights=found.weights)
    except InputError as error:
        raise InputError(f'file "{found.source}": {error}') from None
    directed, why = _direction(found, listed, directed)
    if not directed and listed.weights is not None:
        _check_weights(found, listed, listed.weights)
    arrays: dict[str, Any] = {
        "edges": found.edges,
        "features": found.features,
        "labels": found.labels,
        "directed": np.array(directed),
        **found.masks,
    }
    if found.weights is not None:
        arrays["edge_weight"] = found.weights
    if found.vertex_ids is not None:
        arrays["vertex_ids"] = np.array(found.vertex_ids, dtype=np.str_)
    if found.class_names is not None:
        arrays["class_names"] = np.array(found.class_names, dtype=np.str_)
        # A class may be named and have no vertex.
        arrays["num_classes"] = np.array(len(found.class_names))
    with writing(f'--out "{out}"', "give another place"):
        np.savez(path, **arrays)
    try:
        made = Source(name="imported", source="npz", path=str(path), symmetrise=not directed)
        graph = made.load(path.parent, 0)
    except InputError as error:
        said = str(error).removeprefix(f'file "{path}": ').removeprefix("imported: ")
        where = " or ".join(f'"{table}"' for table in found.tables or [found.source])
        raise InputError(f"file {where}: {said}") from None
    return _summary(found, listed, graph, out, why)


def _direction(found: ImportedGraph, listed: InEdges, asked: bool | None) -> tuple[bool, str]:
    """Whether edges keep their direction, and the summary's words for it."""
    if asked is not None:
        return asked, "directed, as asked" if asked else "undirected, as asked: each reverse is added"
    if found.undirected:
        return False, "taken as undirected (--directed keeps directions)"
    if listed.symmetric:
        return False, "undirected: every edge has its reverse"
    return True, "directed: not every edge has a reverse of the same weight (--undirected adds reverses)"


def _check_weights(found: ImportedGraph, listed: InEdges, weights: np.ndarray) -> None:
    """Raise InputError where the two directions of an undirected edge have different weights."""
    differ = conflict(listed.indptr, listed.indices, weights)
    if differ is not None:
        u, v = (found.vertex_ids[end] if found.vertex_ids is not None else end for end in differ[:2])
        raise InputError(
            f'file "{found.source}": edge {u} -> {v} weighs {differ[2]:g} and {v} -> {u} weighs'
            f" {differ[3]:g}: give both the same weight, or --directed"
        )


def _summary(found: ImportedGraph, listed: InEdges, graph: Graph, out: Path, direction: str) -> list[str]:
    loops = found.edges[:, 0] == found.edges[:, 1]
    repeated = len(found.edges) - len(listed.indices)
    added = "whose weights are added up" if graph.weights is not None else "which count once"
    kind = "label sets" if graph.multilabel else "classes"
    lines = [
        f"wrote {out}: {graph.num_vertices} vertices, {graph.num_edges} directed edges, {graph.num_features}"
        f" features, {graph.num_classes} {kind}"
    ]
    said = {
        "edges": f"{len(found.edges)} listed{_both_ways(found, graph)}; {direction}",
        "self-loops": f"{loops.sum()}, kept in the file and not used in training" if loops.any() else "none",
        "duplicates": f"{repeated} repeated edges, {added}" if repeated else "none",
        "weights": "none" if graph.weights is None else "edge_weight, from the source",
        "vertices": "numbered as in the source"
        if found.vertex_ids is None
        else f"renumbered 0 to {graph.num_vertices - 1}; their names are kept as vertex_ids",
        "classes": _classes(found, graph),
        "labels": _unlabelled(graph),
        "split": _split(found, graph),
    }
    if found.weights is not None and graph.weights is None:
        said["weights"] = "all 1, which is a graph without weights"
    said |= found.assumed
    width = max(map(len, said))
    lines += [f"  {topic.ljust(width)}  {text}" for topic, text in said.items()]
    return [*lines, f"next: halobench dataset=npz dataset.path={out} workers=2"]


def _both_ways(found: ImportedGraph, graph: Graph) -> str:
    """How many of the listed edges of an undirected graph have their reverse listed too: each pair of them is
    one edge between two vertices. Empty for a directed graph."""
    if not graph.symmetric:
        return ""
    ends = np.unique(found.edges[found.edges[:, 0] != found.edges[:, 1]], axis=0).astype(np.int64)
    number = lambda pairs: pairs[:, 0] * graph.num_vertices + pairs[:, 1]  # noqa: E731
    both = int(np.isin(number(ends), number(ends[:, ::-1])).sum())
    listed = {0: "each in one direction", len(ends): "each in both directions"}
    said = listed.get(both, f"{both} of them in both directions")
    return f", {said}: {len(ends) - both // 2} edges between two vertices, in training two directed ones each"


def _classes(found: ImportedGraph, graph: Graph) -> str:
    if found.class_names is None:
        return f"0 to {graph.num_classes - 1}, as in the source"
    named = [f"{number} = {name}" for number, name in enumerate(found.class_names)]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    numbers = [name for name in found.class_names if is_number(name)]
    words = [name for name in found.class_names if not is_number(name)]
    mixed = f"; {numbers[0]} is a number and {words[0]} is not, so look at them" if numbers and words else ""
    return f"named, in order of name: {', '.join(named[:SHOWN])}{more} (kept as class_names){mixed}"


def _unlabelled(graph: Graph) -> str:
    if graph.multilabel:
        return f"{int((graph.labels.sum(1) == 0).sum())} vertices have none of the labels"
    lacking = int((graph.labels < 0).sum())
    return (
        f"{lacking} of {graph.num_vertices} vertices have none and are in no split"
        if lacking
        else "one per vertex"
    )


def _split(found: ImportedGraph, graph: Graph) -> str:
    if not found.masks:
        return "none in the source: each run draws 60 % train, 20 % val, 20 % test by its seed"
    several = np.atleast_2d(found.masks["train"]).shape[0]
    which = f" (the first of {several}; dataset.mask chooses)" if several > 1 else ""
    counts = ", ".join(f"{int(getattr(graph, name).sum())} {name}" for name in SPLITS)
    without = "" if graph.val.any() else "; without val, a run is judged by its last evaluation"
    return f"the source's own: {counts}{which}{without}"
