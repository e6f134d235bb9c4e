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
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def read(path: Path) -> ImportedGraph:
    """The graph in a file of torch.save: a torch_geometric Data, the dict of its tensors, or what an
    InMemoryDataset of one graph stores.

    The file is read with weights_only. Raises InputError where it holds more than tensors or no graph."""
    # Heavy, and needed here only.
    data, attributes, storage = (
        package(f"torch_geometric.{name}", "import") for name in ("data", "data.data", "data.storage")
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
            f'file "{path}" holds more than tensors, or is not a file of torch.save, and is not'
            " loaded: store the dict"
            " of its tensors with torch.save(data.to_dict(), FILE)"
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
    if "edge_index" not in stored:
        raise InputError(
            f'file "{path}" has no edge_index (there are: {listed(stored)}): store the edges under it'
        )
    edges = _array(path, "edge_index", stored["edge_index"])
    if edges.ndim != 2 or len(edges) != 2:
        raise InputError(f'file "{path}": edge_index has shape {edges.shape}: give [2, edges]')
    weights = stored.get("edge_weight")
    attribute = stored.get("edge_attr")
    assumed = {}
    if weights is None and isinstance(attribute, torch.Tensor) and attribute[:1].numel() in (0, 1):
        weights = attribute
        assumed["weights"] = "edge_attr, which has one number per edge"
    elif attribute is not None:
        assumed["edge_attr"] = "left out: training uses one weight per edge, not features of edges"
    return _found(path, edges.T, stored, weights, assumed)


def _found(
    path: Path, edges: np.ndarray, given: Mapping[str, Any], weights: Any, assumed: dict[str, str]
) -> ImportedGraph:
    features = _first(path, given, FEATURES, "features")
    if features.ndim != 2:
        raise InputError(f'file "{path}": features have shape {features.shape}: give [vertices, features]')
    labels = _first(path, given, LABELS, "labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.dtype.kind == "f":
        if not np.isin(labels, (0, 1)).all():
            raise InputError(
                f'file "{path}": labels of {labels.shape} are label sets: give 0 or 1 in each column'
            )
        labels = labels.astype(np.uint8)
    masks = {}
    for split, names in MASKS.items():
        name = next((name for name in names if given.get(name) is not None), None)
        if name is not None:
            mask = _array(path, name, given[name])
            # torch_geometric has alternative splits in columns, the npz in rows.
            masks[split] = (mask.T if mask.ndim == 2 else mask).astype(bool)
    if 0 < len(masks) < 3:
        raise InputError(
            f'file "{path}" has only {" and ".join(masks)} of three masks: give all three or none'
        )
    return ImportedGraph(
        source=path,
        edges=np.ascontiguousarray(edges),
        features=features,
        labels=labels,
        weights=None if weights is None else _weights(path, weights, len(edges)),
        masks=masks,
        assumed=assumed,
    )


def _weights(path: Path, value: Any, edges: int) -> np.ndarray:
    weights = _array(path, "edge_weight", value)
    if weights.shape not in ((edges,), (edges, 1)):
        raise InputError(
            f'file "{path}": edge_weight has shape {weights.shape}: give one number per edge, {edges}'
        )
    return weights.reshape(edges)


def _first(path: Path, given: Mapping[str, Any], names: Sequence[str], what: str) -> np.ndarray:
    name = next((name for name in names if given.get(name) is not None), None)
    if name is None:
        raise InputError(
            f'file "{path}" has no {what} (there are: {listed(given)}): store them as'
            f" {' or '.join(names[:2])}"
        )
    return _array(path, name, given[name])


def _array(path: Path, name: str, value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        raise InputError(f'file "{path}": {name} is a {type(value).__name__}: give a dense tensor')
    refused = {
        "sparse": value.layout != torch.strided,
        "nested": value.is_nested,
        "quantised": value.is_quantized,
        f"one on {value.device.type}": value.device.type != "cpu",
        f"one of {value.dtype}": value.dtype not in DTYPES,
    }
    if odd := next((what for what, so in refused.items() if so), ""):
        raise InputError(f'file "{path}": {name} is a Tensor, {odd}: give a dense tensor of numbers')
    with raw.reading(path):
        # An expanded tensor repeats a few stored bytes for any number of values.
        raw.affordable(path, value.numel() * value.element_size())
    value = value.detach().resolve_conj().resolve_neg()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
