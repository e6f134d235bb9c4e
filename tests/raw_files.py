"""Writers of small raw files in the formats of the real data sets, and the graph they hold."""

import gzip
import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from harness.base.errors import InputError, typed
from harness.data import real
from harness.data.graph import Graph
from harness.data.sources import Source
from tests.conftest import ROOT


@dataclass
class Small:
    """What a small data set holds: directed edges (one direction each), and all that belongs to the
    vertices.
    """

    src: np.ndarray  # [E]
    dst: np.ndarray  # [E]
    features: np.ndarray  # [V, F] float32 of 0 and 1
    labels: np.ndarray  # [V] int64
    kinds: np.ndarray  # [V] 1 train, 2 validation, 3 test

    @property
    def num_vertices(self) -> int:
        return len(self.labels)

    def adjacency(self, symmetrise: bool = True) -> np.ndarray:
        """[V, V] bool, entry (v, u) for the edge u -> v."""
        dense = np.zeros((self.num_vertices, self.num_vertices), bool)
        dense[self.dst, self.src] = True
        return dense | dense.T if symmetrise else dense


def small(num_vertices: int = 40, seed: int = 0) -> Small:
    """Of 120 edges, 6 features and 3 classes."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, num_vertices, (2, 120))
    src, dst = src[src != dst], dst[src != dst]
    labels = rng.permutation(np.arange(num_vertices) % 3)
    kinds = rng.permutation(1 + np.arange(num_vertices) % 3)
    return Small(src, dst, (rng.random((num_vertices, 6)) < 0.5).astype(np.float32), labels, kinds)


def compressed(table: np.ndarray, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays that hold the compressed rows of a table in an npz."""
    matrix = sp.csr_matrix(table)
    return {f"{prefix}{part}": getattr(matrix, part) for part in ("data", "indices", "indptr", "shape")}


def _raw(folder: Path) -> Path:
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    return folder / "raw"


def write_reddit(folder: Path, what: Small) -> None:
    raw = _raw(folder)
    np.savez(
        raw / "reddit_data.npz",
        feature=what.features,
        label=what.labels,
        node_types=what.kinds,
        node_ids=np.arange(what.num_vertices),
    )
    sp.save_npz(raw / "reddit_graph.npz", sp.coo_matrix(what.adjacency()))


def write_saint(folder: Path, what: Small, multilabel: np.ndarray | None = None) -> None:
    """`multilabel` [V, C] replaces the single labels."""
    raw = _raw(folder)
    np.savez(raw / "adj_full.npz", **compressed(what.adjacency()))
    np.save(raw / "feats.npy", what.features.astype(np.float64))
    classes = what.labels if multilabel is None else multilabel
    of_each = {str(v): classes[v].tolist() for v in reversed(range(what.num_vertices))}
    (raw / "class_map.json").write_text(json.dumps(of_each))
    roles = {
        name: np.flatnonzero(what.kinds == kind).tolist() for name, kind in (("tr", 1), ("va", 2), ("te", 3))
    }
    (raw / "role.json").write_text(json.dumps(roles))


def write_attributed(folder: Path, file: str, what: Small) -> None:
    """Coauthor, Amazon and CitationFull; features as counts, an object array as theirs beside."""
    np.savez(
        _raw(folder) / file,
        **compressed(what.adjacency(symmetrise=False).T, "adj_"),
        **compressed(what.features * 3, "attr_"),
        labels=what.labels,
        class_names=np.array(["a", None], dtype=object),
    )


def write_heterophilous(folder: Path, what: Small) -> None:
    """Two masks: mask k is the split with its parts rotated k times."""
    masks = {
        f"{name}_masks": np.stack([(what.kinds + k) % 3 == kind % 3 for k in range(2)])
        for name, kind in (("train", 1), ("val", 2), ("test", 3))
    }
    np.savez(
        _raw(folder) / "tolokers.npz",
        node_features=what.features,
        node_labels=what.labels,
        edges=np.stack([what.src, what.dst], 1),
        **masks,
    )


def write_planetoid(folder: Path, name: str, what: Small, missing: tuple[int, ...] = ()) -> np.ndarray:
    """12 vertices train, the last 10 test but for `missing` ones, which no file describes. Returns the test
    ids.
    """
    raw, known = _raw(folder), what.num_vertices - 10
    one_hot = np.eye(what.labels.max() + 1, dtype=np.int32)[what.labels]
    test = np.random.default_rng(0).permutation(
        [v for v in range(known, what.num_vertices) if v not in missing]
    )
    graph = {
        v: what.dst[what.src == v].tolist() + what.src[what.dst == v].tolist()
        for v in range(what.num_vertices)
    }
    parts = {
        "x": sp.csr_matrix(what.features[:12]),
        "tx": sp.csr_matrix(what.features[test]),
        "allx": sp.csr_matrix(what.features[:known]),
        "y": one_hot[:12],
        "ty": one_hot[test],
        "ally": one_hot[:known],
        "graph": graph,
    }
    for part, content in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(pickle.dumps(content, protocol=2))
    (raw / f"ind.{name}.test.index").write_text("\n".join(map(str, test)) + "\n")
    return test


def _write_splits(folder: Path, kind: str, what: Small) -> None:
    (folder / "split" / kind).mkdir(parents=True, exist_ok=True)
    for part, number in (("train", 1), ("valid", 2), ("test", 3)):
        write_table(folder / "split" / kind / f"{part}.csv.gz", np.flatnonzero(what.kinds == number)[:, None])


def write_table(path: Path, values: np.ndarray) -> None:
    with gzip.open(path, "wt") as file:
        np.savetxt(file, values, fmt="%d" if values.dtype.kind in "iu" else "%.6f", delimiter=",")


def write_ogb_tables(folder: Path, kind: str, what: Small) -> None:
    raw = _raw(folder)
    write_table(raw / "edge.csv.gz", np.stack([what.src, what.dst], 1))
    write_table(raw / "node-feat.csv.gz", what.features)
    write_table(raw / "node-label.csv.gz", what.labels[:, None])
    _write_splits(folder, kind, what)


def write_ogb_edge_features(folder: Path, what: Small, edge_features: np.ndarray | None = None) -> None:
    """Labels as columns of 0 and 1. Each edge carries what makes the mean over a vertex's edges easy to know:
    `edge_features` [E, F], or ones.
    """
    raw = _raw(folder)
    write_table(raw / "edge.csv.gz", np.stack([what.src, what.dst], 1))
    given = np.ones((len(what.src), 8)) if edge_features is None else edge_features
    write_table(raw / "edge-feat.csv.gz", given)
    write_table(raw / "node-label.csv.gz", np.eye(4, dtype=int)[what.labels])
    _write_splits(folder, "species", what)


def write_ogb_binary(folder: Path, what: Small, unlabelled: int = 0) -> None:
    """`unlabelled` adds as many vertices without label, edge or split."""
    raw = _raw(folder)
    features = np.concatenate([what.features, np.zeros((unlabelled, what.features.shape[1]), np.float32)])
    labels = np.concatenate([what.labels, np.full(unlabelled, np.nan)]).astype(np.float32)[:, None]
    np.savez(
        raw / "data.npz",
        edge_index=np.stack([what.src, what.dst]),
        node_feat=features,
        num_nodes_list=[len(features)],
        num_edges_list=[len(what.src)],
    )
    np.savez(raw / "node-label.npz", node_label=labels)
    _write_splits(folder, "time", what)


def block(name: str, **changes) -> Source:
    """The dataset block of conf/dataset/NAME.yaml."""
    stored = yaml.safe_load((ROOT / f"conf/dataset/{name}.yaml").read_text())
    return typed(Source, {**stored, **changes}, "dataset")


class Hostile:
    """Unpickled, it calls a function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def refused(name: str, data_dir: Path, says: str) -> str:
    """The one sentence, which `says` matches, with which data set `name` in `data_dir` is refused."""
    with pytest.raises(InputError, match=says) as error:
        block(name).load(data_dir, seed=1)
    assert "\n" not in str(error.value)
    return str(error.value)


def parts_of(what: Small) -> dict[str, np.ndarray]:
    """What an npz of one's own has to have."""
    return {"edges": np.stack([what.src, what.dst], 1), "features": what.features, "labels": what.labels}


def dense(graph: Graph) -> np.ndarray:
    """[V, V] bool, entry (v, u) for the edge u -> v."""
    matrix = np.zeros((graph.num_vertices,) * 2, bool)
    matrix[np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr)), graph.indices] = True
    return matrix


MULTILABEL = ("yelp", "amazon-products")


def write(name: str, data_dir: Path, what: Small) -> Path:
    """Write the small raw files of data set `name`; returns their folder."""
    known = real.SETS[name]
    folder, file = data_dir / known.folders[0], Path(known.files[0]).name
    (folder / known.files[0]).parent.mkdir(parents=True, exist_ok=True)
    split = Path(known.files[-1]).parent.name  # of ogb's: "split/NAME/test.csv.gz"
    classes = np.eye(4, dtype=int)[what.labels] if name in MULTILABEL else None
    match known.read.__name__:
        case "read_reddit":
            write_reddit(folder, what)
        case "read_saint":
            write_saint(folder, what, classes)
        case "read_planetoid":
            write_planetoid(folder, name, what)
        case "read_heterophilous":
            write_heterophilous(folder, what)
        case "read_tables":
            write_ogb_tables(folder, split, what)
        case "read_edge_features":
            write_ogb_edge_features(folder, what)
        case "read_binary":
            write_ogb_binary(folder, what, unlabelled=3)
        case "read_attributed":
            write_attributed(folder, file, what)
        case _:
            np.savez(folder / known.files[0], **parts_of(what))
    return folder
