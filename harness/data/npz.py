"""Bring your own graph: one npz file, whose format docs/data.md documents."""

import warnings
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from harness.base.errors import InputError, did_you_mean
from harness.data import raw
from harness.data.csr import InEdges, from_csr, from_edges

SPLITS = ("train", "val", "test")
KEYS = (
    "edges", "indptr", "indices", "edge_weight", "features", *raw.SPARSE, "labels", *SPLITS, "num_classes",
    "directed",
)  # fmt: skip
# Arrays that `halobench import` adds for the user; training does not read them.
KEPT = ("vertex_ids", "class_names")
# torch_geometric's names of the same arrays.
RENAMES = {
    "edge_index": "edges",
    "x": "features",
    "y": "labels",
    "train_mask": "train",
    "val_mask": "val",
    "test_mask": "test",
}
LOOKED_AT = 1000  # edges of a directed graph, spread evenly over it, whose reverse is looked for
MEND = (
    "make one with `halobench import`, which reads CSV, PyG and other files, or with np.savez under the names"
    " of docs/data.md, and give that file"
)


def read(path: Path, symmetrise: bool | None) -> raw.Raw:
    """The graph in `path`; `symmetrise` None adds the reverse of every edge unless the file is `directed`.

    Raises InputError for every way in which the file is not as documented."""
    names = names_in(path)
    with raw.reading(path):
        _present(names)
    parts = raw.arrays(path, (), KEYS)
    with raw.reading(path):
        directed = symmetrise is None and "directed" in parts and _scalar(parts, "directed", "b")
        asked = not directed if symmetrise is None else symmetrise
        found = graph_of(parts, path, asked, own=True)
        if directed and (looked := _without_reverse(found.edges)):
            warnings.warn(
                f"the graph is directed, as its file says, and of {looked} edges none has its reverse: where"
                " an undirected graph lists each edge once, give dataset.symmetrise=true",
                stacklevel=2,
            )
    return found


def graph_of(
    parts: dict[str, np.ndarray], path: Path, symmetrise: bool, own: bool = False, self_loops: bool = True
) -> raw.Raw:
    """The graph in arrays of the file `path` that are named as in an npz of one's own.

    own         whether it is one: vertices may then lack a label
    self_loops  keep v -> v where it occurs

    Raises InputError where the arrays do not fit each other."""
    features = (
        raw.features_of(parts.pop("features")) if "features" in parts else raw.sparse_features(parts, path)
    )
    labels, num_classes = _labels(parts, own)
    edges = _edges(parts, len(features), len(labels), symmetrise, self_loops)
    masks: raw.Masks | None = None
    if "train" in parts:
        train, val, test = (_mask(key, parts[key], len(features)) for key in SPLITS)
        masks = train, val, test
        if len({len(mask) for mask in masks}) > 1:
            raise InputError(
                f"train, val and test hold {', '.join(str(len(mask)) for mask in masks)} splits; give the "
                "same number of each"
            )
    return raw.Raw(edges, features, labels, num_classes, masks)


def names_in(path: Path) -> list[str]:
    """The names of the file's arrays. Raises InputError where no npz file is at `path`."""
    if not path.is_file():
        what = "a folder, not a file" if path.is_dir() else "not a file"
        others = (each.name for each in path.parent.glob("*.npz") if each.is_file())
        near = did_you_mean(path.name, others)
        give = near if near.endswith("?") else ": give the path of an npz, as in docs/data.md"
        raise InputError(f'dataset.path="{path}" is {what}{give}')
    return raw.array_names(path, MEND)


def _present(names: list[str]) -> None:
    # Edges may also be given as indptr and indices, and features as the arrays of raw.SPARSE.
    given = set(names)
    if {"indptr", "indices"} <= given:
        given.add("edges")
    if set(raw.SPARSE) <= given:
        given.add("features")
    renames = [f"{old} to {new}" for old, new in RENAMES.items() if old in names and new not in given]
    if renames:
        raise InputError(f"these arrays have torch_geometric's names: rename {', '.join(renames)}")
    unknown = [name for name in names if name not in (*KEYS, *KEPT)]
    hint = did_you_mean(unknown[0], KEYS) if unknown else ""

    def need(found: bool, what: str) -> None:
        if not found:
            stranger = f' ("{unknown[0]}" is not a key{hint})' if unknown else ""
            raise InputError(f"{what}{stranger}")

    need("edges" in given, "the edges are missing: give edges, or indptr and indices")
    need(
        not ("edges" in names and "indptr" in names),
        "the edges are there twice: give either edges or indptr and indices",
    )
    need("features" in given, f"the features are missing: give features, or {', '.join(raw.SPARSE)}")
    need("labels" in names, "labels is missing: give one label per vertex")
    splits = [key for key in SPLITS if key in names]
    only = f"only {' and '.join(splits)} of train, val and test is given"
    need(len(splits) in (0, 3), f"{only}: give all three or none")
    for name in sorted(set(unknown) - set(KEPT), key=unknown.index):
        warnings.warn(f'array "{name}" of the npz is ignored{did_you_mean(name, KEYS)}', stacklevel=2)


def _edges(
    parts: dict[str, np.ndarray], rows: int, labelled: int, symmetrise: bool, self_loops: bool
) -> InEdges:
    """The in-edges of as many vertices as features has `rows`. Where the edges name more vertices,
    `labelled`, the rows of labels, helps the error to say which array is at fault."""
    how: dict[str, Any] = {
        "weights": parts.get("edge_weight"), "symmetrise": symmetrise, "self_loops": self_loops
    }  # fmt: skip
    if "edges" not in parts:
        indptr = parts["indptr"]
        described = indptr.size - 1
        if described > rows:
            found = f"indptr describes {described} vertices"
            _too_short(rows, labelled, described, found, f"give indptr {rows + 1} entries")
        if described < rows:
            raise InputError(
                f"indptr has {indptr.size} entries for {rows} rows of features: give one more than rows"
            )
        if parts["indices"].ndim != 1:
            raise InputError(f"indices has shape {parts['indices'].shape}: give one list of vertices")
        return from_csr(indptr, parts["indices"], **how)
    pairs = parts["edges"]
    if pairs.ndim != 2 or 2 not in pairs.shape:
        raise InputError(f"edges has shape {pairs.shape}: give [edges, 2] or [2, edges], source and target")
    named = int(pairs.max()) if pairs.size and pairs.dtype.kind in "iu" else -1
    if named >= rows:
        found = f"edges name vertex {named}"
        _too_short(rows, labelled, named + 1, found, f"number the vertices 0 to {rows - 1}")
    src, dst = (pairs[:, 0], pairs[:, 1]) if pairs.shape[1] == 2 else pairs
    return from_edges(src, dst, rows, **how)


def _without_reverse(edges: InEdges) -> int:
    """How many edges were looked at (LOOKED_AT at most) if none of them has its reverse, else 0."""
    indptr, sources = edges.indptr, edges.indices
    if not len(sources):
        return 0
    at = np.unique(np.linspace(0, len(sources) - 1, LOOKED_AT).astype(np.int64))
    ends = np.searchsorted(indptr, at, side="right") - 1
    looked = [(u, v) for u, v in zip(sources[at], ends) if u != v]
    # Row u has the in-neighbours of u, so it holds v where v -> u is an edge.
    some = any(v in sources[indptr[u] : indptr[u + 1]] for u, v in looked)
    return 0 if some else len(looked)


def _too_short(rows: int, labelled: int, vertices: int, found: str, otherwise: str) -> NoReturn:
    """Raise InputError: features has fewer `rows` than the edges have `vertices`, as the words `found` say.

    Where labels has a row for each of these vertices, features is at fault; else the edges may be wrong, and
    `otherwise` says how to correct them."""
    mend = "give features one row per vertex"
    if labelled < vertices:
        mend = f"give features and labels one row per vertex, or {otherwise}"
    raise InputError(f"features has {rows} rows and labels {labelled}, but {found}: {mend}")


def _labels(parts: dict[str, np.ndarray], own: bool) -> tuple[np.ndarray, int]:
    labels = parts["labels"]
    if labels.ndim == 2 and labels.shape[1] > 1:
        if labels.dtype.kind not in "iubf" or not np.isin(labels, (0, 1)).all():
            raise InputError(
                f"labels of type {labels.dtype} in {labels.shape} are label sets: give 0 or 1 in each column"
            )
        labels = labels.astype(np.uint8)
    else:
        labels = raw.single_labels(labels, unlabelled=own)
    if "num_classes" in parts:
        return labels, _scalar(parts, "num_classes", "iu")
    return labels, raw.class_count(labels, "store num_classes to keep empty classes" if own else raw.FETCH)


def _mask(key: str, values: np.ndarray, num_vertices: int) -> np.ndarray:
    """[K, V] bool from a mask [V], K alternative masks [K, V], or a list of vertices."""
    if values.dtype == np.bool_:
        if values.ndim not in (1, 2) or values.shape[-1] != num_vertices or not len(values):
            raise InputError(
                f"{key} has shape {values.shape} for {num_vertices} vertices: give one bool per vertex, or a "
                "list of vertices"
            )
        return values.reshape(-1, num_vertices)
    mask = raw.mask_of(values, num_vertices, key)
    if mask.sum() != values.size:
        raise InputError(
            f"{key} lists a vertex twice: list each once (a mask of 0 and 1 must be stored as bool)"
        )
    return mask[None]


def _scalar(parts: dict[str, np.ndarray], key: str, kinds: str) -> bool | int:
    value = parts[key]
    # 0 and 1 pass for false and true.
    if (
        value.size != 1
        or value.dtype.kind not in kinds + ("iu" if kinds == "b" else "")
        or (kinds == "b" and value.item() not in (0, 1))
    ):
        raise InputError(
            f"{key}={value.tolist() if value.size < 5 else value.shape} cannot be used: give one "
            f"{'bool' if kinds == 'b' else 'whole number'}"
        )
    return value.item()
