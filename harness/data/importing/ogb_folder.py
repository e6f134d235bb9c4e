"""A folder of the Open Graph Benchmark's vertex data sets, as ogb lays them out: raw/ and split/NAME/."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.base.errors import InputError
from harness.data.importing.imported import ImportedGraph
from harness.data.raw import arrays, mask_of, table

PARTS = {"train": "train", "val": "valid", "test": "test"}


def read(folder: Path, split: str | None) -> ImportedGraph:
    """`split` names a folder below split/; needed where there are several."""
    if not folder.is_dir():
        raise InputError(f'folder "{folder}" is not there: give the folder that holds raw/ and split/')
    weights = None
    if (folder / "raw" / "data.npz").is_file():
        parts = arrays(folder / "raw" / "data.npz", ("edge_index", "node_feat"))
        edges, features = parts["edge_index"].T, parts["node_feat"]
        labels = arrays(folder / "raw" / "node-label.npz", ("node_label",))["node_label"]
    else:
        edges = _table(folder, "edge", np.int64)
        features = _table(folder, "node-feat", np.float32)
        labels = _table(folder, "node-label", np.float64)
        if (folder / "raw" / "edge-weight.csv.gz").is_file():
            weights = _table(folder, "edge-weight", np.float64)[:, 0]
    if labels.ndim == 2 and labels.shape[1] > 1:
        if not np.isin(labels, (0, 1)).all():
            raise InputError(
                f'folder "{folder}": node-label has {labels.shape[1]} columns that are not all 0'
                " and 1: give one"
                " class per vertex, or label sets"
            )
        labels = labels.astype(np.uint8)
    assumed = {"left out": "what else the folder holds: edge features, years, species"}
    chosen = _split(folder, split)
    masks = {}
    if chosen is not None:
        assumed["split"] = f"the folder's own, split/{chosen.name}"
        for name, part in PARTS.items():
            path = chosen / f"{part}.csv.gz"
            _there(path)
            masks[name] = mask_of(table(path, np.int64)[:, 0], len(features), f'file "{path}"')
    return ImportedGraph(folder, edges, features, labels, weights, masks, assumed=assumed)


def _split(folder: Path, asked: str | None) -> Path | None:
    there = sorted(p for p in (folder / "split").glob("*") if p.is_dir())
    names = ", ".join(p.name for p in there) or "none"
    if asked is not None:
        chosen = [p for p in there if p.name == asked]
        if not chosen:
            raise InputError(
                f'--split "{asked}" is not in {folder / "split"} (there are: {names}): give one of them'
            )
        return chosen[0]
    if len(there) > 1:
        raise InputError(f'folder "{folder / "split"}" has several splits: give --split with one of {names}')
    return there[0] if there else None


def _table(folder: Path, name: str, dtype) -> np.ndarray:
    path = folder / "raw" / f"{name}.csv.gz"
    _there(path)
    return table(path, dtype)


def _there(path: Path) -> None:
    if not path.is_file():
        raise InputError(f'file "{path}" is missing: give a folder as ogb lays it out (raw/edge.csv.gz, ...)')
