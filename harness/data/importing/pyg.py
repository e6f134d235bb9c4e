"""A torch_geometric Data that torch.save wrote."""

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.base.errors import InputError, listed, package
from harness.data import raw
from harness.data.importing.imported import ImportedGraph

FEATURES, LABELS = ("x", "feat", "feature", "features"), ("y", "label", "labels")
MASKS = {"train": ("train_mask",), "val": ("val_mask", "valid_mask"), "test": ("test_mask",)}


def read(path: Path) -> ImportedGraph:
    """The graph in a file of torch.save: a torch_geometric Data, the dict of its tensors, or what an
    InMemoryDataset of one graph stores.

    The file is read with weights_only. Raises InputError where it holds more than tensors or no graph."""
    # Heavy, and needed here only.
    data, attributes, storage = (
        package(f"torch_geometric.{name}", "import", "halobench import pyg")
        for name in ("data", "data.data", "data.storage")
    )
    classes = [data.Data, attributes.DataEdgeAttr, attributes.DataTensorAttr]
    classes += [getattr(storage, f"{kind}Storage") for kind in ("Base", "Node", "Edge", "Global")]
    if not path.is_file():
        raise InputError(f'file "{path}" is not there: give the path of a file')
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(classes):
            warnings.simplefilter("ignore")  # about other pickles, which are refused below
            stored = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f'file "{path}" holds more than tensors, or is not a file of torch.save, and is not loaded: store'
            " the dict of its tensors with torch.save(data.to_dict(), FILE)"
        ) from None
    except Exception as error:  # bytes from anywhere
        raise InputError(
            f'file "{path}" is not a whole file of torch.save ({type(error).__name__}): give one'
        ) from None
    # An InMemoryDataset stores a tuple (data, slices, ...); slices is None where it has one graph.
    if isinstance(stored, tuple) and stored:
        if len(stored) > 1 and stored[1] is not None:
            raise InputError(
                f'file "{path}" holds several graphs: store one, with torch.save(dataset[0], FILE)'
            )
        stored = stored[0]
    if isinstance(stored, data.Data):
        stored = stored.to_dict()
    if not isinstance(stored, Mapping):
        raise InputError(
            f'file "{path}" holds a {type(stored).__name__}: give a torch_geometric Data, or the'
            " dict of its tensors"
        )
    edges = _array(path, stored, ("edge_index",), "edges")
    if edges.ndim != 2 or len(edges) != 2:
        raise InputError(f'file "{path}": edge_index has shape {edges.shape}: give [2, edges]')
    features = _array(path, stored, FEATURES, "features")
    if features.ndim != 2:
        raise InputError(f'file "{path}": features have shape {features.shape}: give [vertices, features]')
    weighted, attribute = stored.get("edge_weight") is not None, stored.get("edge_attr")
    assumed = {}
    if not weighted and isinstance(attribute, torch.Tensor) and attribute[:1].numel() in (0, 1):
        weighted, stored = True, {**stored, "edge_weight": attribute}
        assumed["weights"] = "edge_attr, which has one number per edge"
    elif attribute is not None:
        assumed["edge_attr"] = "left out: training uses one weight per edge, not features of edges"
    masks = {}
    for split, names in MASKS.items():
        if any(stored.get(name) is not None for name in names):
            # torch_geometric has alternative splits in columns, the npz in rows.
            masks[split] = _mask(path, split, _array(path, stored, names, split))
    return ImportedGraph(
        source=path,
        edges=np.ascontiguousarray(edges.T),
        features=features,
        labels=_array(path, stored, LABELS, "labels"),
        weights=_array(path, stored, ("edge_weight",), "weights") if weighted else None,
        masks=masks,
        assumed=assumed,
    )


def _mask(path: Path, split: str, values: np.ndarray) -> np.ndarray:
    """[V] or [K, V] bool of a mask [V] or [V, K]. InputError where it holds more than 0 and 1, as a list of
    vertices does."""
    if not np.isin(values, (0, 1)).all():
        odd = values[~np.isin(values, (0, 1))][0]
        raise InputError(
            f'file "{path}": the mask of {split} holds {odd}: give true or false for each vertex, and no list'
            " of vertices"
        )
    return values.T.astype(bool)


def _array(path: Path, stored: Mapping[str, Any], names: Sequence[str], what: str) -> np.ndarray:
    """The tensor under the first of `names` that is there, as an array. Raises InputError where none is
    there, in which it is called `what`, and where it is another thing than a dense tensor of real numbers."""
    name = next((name for name in names if stored.get(name) is not None), None)
    if name is None:
        raise InputError(
            f'file "{path}" has no {what} (there are: {listed(stored)}): store them as'
            f" {' or '.join(names[:2])}"
        )
    value = stored[name]
    if not isinstance(value, torch.Tensor):
        raise InputError(f'file "{path}": {name} is a {type(value).__name__}: give a dense tensor')
    kind = "nested" if value.is_nested else f"{value.layout} of {value.dtype} on {value.device.type}"
    odd = InputError(f'file "{path}": {name} is a Tensor, {kind}: give a dense tensor of real numbers')
    if value.layout != torch.strided or value.is_complex():
        raise odd
    with raw.reading(path):
        # An expanded tensor repeats a few stored bytes for any number of values.
        raw.affordable(path, value.numel() * value.element_size())
    try:
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy(force=True)
    except (TypeError, RuntimeError):
        raise odd from None
