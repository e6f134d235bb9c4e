"""A small graph in the formats that `halobench import` reads, and the import called as a command."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data.graph import Graph
from harness.data.importing.__main__ import main
from harness.data.sources import Source
from tests.oracles.samples import random_graph, with_edge_weights

SPLITS = ("train", "val", "test")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """What an import does beside, in a process of its own, is test_importing_hostile's."""
    monkeypatch.setattr("harness.data.importing.__main__.apart", lambda work, *_: work())


def sample(seed: int = 1, directed: bool = False, weighted: bool = False) -> Graph:
    graph = random_graph(seed, vertices=16, directed=directed)
    return with_edge_weights(graph, seed, zeros=0) if weighted else graph


def pairs(graph: Graph) -> np.ndarray:
    """[E, 2] source and target."""
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return np.stack([graph.indices, dst], 1).astype(np.int64)


def loaded(path: Path) -> Graph:
    return Source(name="random", source="npz", path=str(path)).load(path.parent, 0)


def assert_same(got: Graph, want: Graph, split: bool = True) -> None:
    for name in ("indptr", "indices", "labels", *(SPLITS if split else ())):
        np.testing.assert_array_equal(getattr(got, name), getattr(want, name), err_msg=name)
    np.testing.assert_allclose(got.features, want.features, rtol=1e-6)
    assert (got.weights is None) == (want.weights is None) and got.symmetric == want.symmetric
    if want.weights is not None:
        np.testing.assert_allclose(got.weights, want.weights, rtol=1e-6)


def write_table(path: Path, rows: list[list], separator: str = ",") -> Path:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    return path


def split_word(graph: Graph, v: int) -> str:
    return next((name for name in SPLITS if getattr(graph, name)[v]), "")


def imported(tmp_path: Path, capsys, *arguments: object) -> str:
    """Run the import to tmp_path/g.npz; returns what it printed."""
    code = main([*map(str, arguments), "--out", str(tmp_path / "g.npz"), "--overwrite"])
    said = capsys.readouterr()
    assert code == 0 and not said.err, said.err
    return said.out


def refused(tmp_path: Path, capsys, *arguments: object) -> str:
    """The one sentence by which an import is refused; nothing is left behind."""
    before = set(tmp_path.iterdir())
    assert main([*map(str, arguments), "--out", str(tmp_path / "refused.npz")]) == 2
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("error: ") and said.err.count("\n") == 1
    assert set(tmp_path.iterdir()) == before
    return said.err


def tensors_of(graph: Graph) -> dict[str, torch.Tensor]:
    # Once here, and not in the process of every import; nor while tests are collected: it takes a second.
    import torch_geometric.data  # noqa: F401

    from harness.data.importing import pyg  # noqa: F401

    given = {
        "x": torch.from_numpy(graph.features),
        "edge_index": torch.from_numpy(pairs(graph).T.copy()),
        "y": torch.from_numpy(graph.labels.astype(np.int64)),
        **{f"{name}_mask": torch.from_numpy(getattr(graph, name)) for name in SPLITS},
    }
    if graph.weights is not None:
        given["edge_weight"] = torch.from_numpy(graph.weights)
    return given


def edge_tables(
    folder: Path, graph: Graph, separator=",", suffix=".csv", ids=str, header=True
) -> list[object]:
    """The arguments that import `graph` from tables: each undirected edge once."""
    kept = [
        (u, v, w)
        for (u, v), w in zip(pairs(graph).tolist(), weights_of(graph))
        if not graph.symmetric or u <= v
    ]
    width = 2 if graph.weights is None else 3
    edges = [[ids(u), ids(v), w][:width] for u, v, w in kept]
    features = [[ids(v), *graph.features[v].tolist()] for v in range(16)]
    labels = [
        [ids(v), "" if graph.labels[v] < 0 else graph.labels[v], split_word(graph, v)]
        for v in reversed(range(16))
    ]
    if header:
        edges.insert(0, ["source", "target", "weight"][:width])
        features.insert(0, ["id", *(f"f{i}" for i in range(graph.num_features))])
        labels.insert(0, ["id", "label", "split"])
    for name, rows in (("edges", edges), ("features", features), ("labels", labels)):
        write_table(folder / f"{name}{suffix}", rows, separator)
    files = ("--features", folder / f"features{suffix}", "--labels", folder / f"labels{suffix}")
    return ["edges", folder / f"edges{suffix}", *files, *(() if graph.symmetric else ("--directed",))]


def weights_of(graph: Graph) -> list[float]:
    return [1.0] * graph.num_edges if graph.weights is None else graph.weights.tolist()


def write(tmp_path: Path, **files: str) -> list[object]:
    """Tables of five vertices with some of them changed, and the arguments that import them."""
    usual = {
        "edges": "# from a paper\nsource,target\na,b\nb,c\nc,a\n",
        "features": "id,x,y1,label\na,1,2,cat\nb,3,4,dog\nc,5,6,cat\nd,1,1,cat\ne,1,1,dog\n",
    }
    for name, text in {**usual, **files}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    labels = ("--labels", tmp_path / "labels.csv") if "labels" in files else ()
    return ["edges", tmp_path / "edges.csv", "--features", tmp_path / "features.csv", *labels]
