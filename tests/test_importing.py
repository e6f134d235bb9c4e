"""Graphs in other formats become the npz that training reads: the same graph, whatever it was kept in."""

from __future__ import annotations

import csv
import gzip
import json
import pickle
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.dgl_kernel import load_dgl
from harness.graph.config import DatasetConfig
from harness.graph.graph import Graph
from harness.graph.sources import load
from harness.importing.__main__ import main
from harness.report.__main__ import main as report
from tests.oracles.samples import random_graph, with_edge_weights

SPLIT_NAMES = {"train": "train", "val": "val", "test": "test"}


def sample(seed: int = 1, directed: bool = False, weighted: bool = False) -> Graph:
    graph = random_graph(seed, vertices=16, directed=directed)
    return with_edge_weights(graph, seed, zeros=0) if weighted else graph


def pairs(graph: Graph) -> np.ndarray:
    """[E, 2] source and target."""
    dst = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    return np.stack([graph.indices, dst], 1).astype(np.int64)


def loaded(path: Path) -> Graph:
    return load(DatasetConfig(name="random", source="npz", path=str(path)), path.parent, 0)


def assert_same(got: Graph, want: Graph, split: bool = True) -> None:
    for name in ("indptr", "indices", "labels", *(("train", "val", "test") if split else ())):
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
    return next((name for name in SPLIT_NAMES if getattr(graph, name)[v]), "")


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
    given = {
        "x": torch.from_numpy(graph.features),
        "edge_index": torch.from_numpy(pairs(graph).T.copy()),
        "y": torch.from_numpy(graph.labels.astype(np.int64)),
        **{f"{name}_mask": torch.from_numpy(getattr(graph, name)) for name in SPLIT_NAMES},
    }
    if graph.weights is not None:
        given["edge_weight"] = torch.from_numpy(graph.weights)
    return given


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kept", ["data", "dict", "dataset"])
def test_a_pyg_data(tmp_path, capsys, directed, weighted, kept):
    from torch_geometric.data import Data

    graph = sample(directed=directed, weighted=weighted)
    data = Data(**tensors_of(graph))
    torch.save(
        {"data": data, "dict": data.to_dict(), "dataset": (data.to_dict(), None, Data)}[kept],
        tmp_path / "a.pt",
    )
    said = imported(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert_same(loaded(tmp_path / "g.npz"), graph)
    assert ("not every edge has a reverse" in said) == directed and "the source's own" in said


def test_a_pyg_data_with_weights_in_edge_attr_and_several_splits(tmp_path, capsys):
    graph = sample(weighted=True)
    given = tensors_of(graph)
    given["edge_attr"] = given.pop("edge_weight")[:, None]
    for name in SPLIT_NAMES:
        given[f"{name}_mask"] = torch.stack([given[f"{name}_mask"]] * 3, 1)
    torch.save(given, tmp_path / "a.pt")
    said = imported(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert_same(loaded(tmp_path / "g.npz"), graph)
    assert "edge_attr, which has one number per edge" in said and "the first of 3" in said


class Harmful:
    def __reduce__(self):
        return (exec, ("raise SystemExit('loaded')",))


def test_a_pickle_is_never_loaded(tmp_path, capsys):
    torch.save({"edge_index": Harmful()}, tmp_path / "a.pt")
    assert "torch.save(data.to_dict(), FILE)" in refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Harmful()))
    assert "is not loaded" in refused(tmp_path, capsys, "pyg", tmp_path / "b.pt")
    np.save(tmp_path / "y.npy", np.array([Harmful()], dtype=object), allow_pickle=True)
    sp.save_npz(tmp_path / "a.npz", sp.eye(1, format="csr"))
    what = ("scipy", tmp_path / "a.npz", "--features", tmp_path / "y.npy", "--labels", tmp_path / "y.npy")
    assert "Python objects, which are never loaded" in refused(tmp_path, capsys, *what)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_dgl_graph(tmp_path, capsys, weighted):
    dgl = load_dgl()
    if dgl is None:
        pytest.skip("dgl 2.1.0 cannot be loaded here")
    graph = sample(directed=True, weighted=weighted)
    given = tensors_of(graph)
    made = dgl.graph(tuple(given["edge_index"]), num_nodes=graph.num_vertices)
    made.ndata.update(feat=given["x"], label=given["y"])
    made.ndata.update({name: mask for name, mask in given.items() if name.endswith("_mask")})
    if weighted:
        made.edata["w"] = given["edge_weight"]
    dgl.save_graphs(str(tmp_path / "a.bin"), [made])
    imported(tmp_path, capsys, "dgl", tmp_path / "a.bin")
    assert_same(loaded(tmp_path / "g.npz"), graph)
    dgl.save_graphs(str(tmp_path / "b.bin"), [made, made])
    assert "2 graphs: save one" in refused(tmp_path, capsys, "dgl", tmp_path / "b.bin")
    (tmp_path / "c.bin").write_text("no graph")
    assert "no file of dgl.save_graphs" in refused(tmp_path, capsys, "dgl", tmp_path / "c.bin")


def test_without_dgl_its_files_are_refused(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.bin").write_text("")
    monkeypatch.setattr("harness.importing.tensors.load_dgl", lambda: None)
    assert "install dgl==2.1.0" in refused(tmp_path, capsys, "dgl", tmp_path / "a.bin")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_scipy_matrix(tmp_path, capsys, directed, weighted):
    graph = sample(directed=directed, weighted=weighted)
    src, dst = pairs(graph).T
    values = np.ones(len(src)) if graph.weights is None else graph.weights
    sp.save_npz(tmp_path / "a.npz", sp.csr_matrix((values, (src, dst)), (16, 16)))
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(graph.features))
    np.save(tmp_path / "y.npy", graph.labels)
    what = ("scipy", tmp_path / "a.npz", "--features", tmp_path / "x.npz", "--labels", tmp_path / "y.npy")
    assert "row u and column v is the edge u -> v" in imported(tmp_path, capsys, *what)
    assert_same(loaded(tmp_path / "g.npz"), graph, split=False)


def test_an_ogb_folder(tmp_path, capsys):
    graph, folder = sample(directed=True, weighted=True), tmp_path / "ogb"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "time").mkdir(parents=True)
    write_table(folder / "raw" / "edge.csv.gz", pairs(graph).tolist())
    write_table(folder / "raw" / "edge-weight.csv.gz", graph.weights[:, None].tolist())
    write_table(folder / "raw" / "node-feat.csv.gz", graph.features.tolist())
    labels = [["nan" if label < 0 else label] for label in graph.labels.tolist()]
    write_table(folder / "raw" / "node-label.csv.gz", labels)
    for name, part in (("train", "train"), ("val", "valid"), ("test", "test")):
        rows = np.flatnonzero(getattr(graph, name))[:, None].tolist()
        write_table(folder / "split" / "time" / f"{part}.csv.gz", rows)
    assert "split/time" in imported(tmp_path, capsys, "ogb", folder)
    assert_same(loaded(tmp_path / "g.npz"), graph)
    (folder / "split" / "random").mkdir()
    assert "give --split with one of random, time" in refused(tmp_path, capsys, "ogb", folder)
    assert "--split" in refused(tmp_path, capsys, "ogb", folder, "--split", "tme")
    imported(tmp_path, capsys, "ogb", folder, "--split", "time")
    (folder / "raw" / "edge.csv.gz").unlink()
    assert "edge.csv.gz" in refused(tmp_path, capsys, "ogb", folder, "--split", "time")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("suffix", [".graphml", ".gml", ".gexf", ".json"])
def test_a_networkx_graph(tmp_path, capsys, suffix, directed):
    graph = sample(directed=directed, weighted=True)
    made = (nx.DiGraph if directed else nx.Graph)()
    for v in range(16):
        features = {f"f{i}": float(x) for i, x in enumerate(graph.features[v])}
        made.add_node(f"v{v}", **features, label="none" if graph.labels[v] < 0 else f"c{graph.labels[v]}")
        made.nodes[f"v{v}"]["split"] = split_word(graph, v) or "none"
    if suffix in (".gml", ".gexf"):  # these two keep an attribute "label" of their own
        for v in made:
            made.nodes[v]["kind"] = made.nodes[v].pop("label")
    made.add_weighted_edges_from(
        (f"v{u}", f"v{v}", float(w))
        for (u, v), w in zip(pairs(graph).tolist(), graph.weights)
        if directed or u <= v
    )
    path = tmp_path / f"a{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(made, edges="links")))
    else:
        getattr(nx, f"write_{suffix[1:]}")(made, path)
    more = ("--label-column", "kind", "--drop", "label") if suffix == ".gexf" else ()
    more = ("--label-column", "kind") if suffix == ".gml" else more
    said = imported(tmp_path, capsys, "networkx", path, *more)
    assert_same(loaded(tmp_path / "g.npz"), graph)
    assert "0 = c0" in said and ("undirected, as the source says" in said) == (not directed)
    assert np.load(tmp_path / "g.npz")["vertex_ids"].tolist() == [f"v{v}" for v in range(16)]


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


@settings(max_examples=10)
@given(
    seed=st.integers(0, 99),
    directed=st.booleans(),
    weighted=st.booleans(),
    separator=st.sampled_from([",", "\t", ";"]),
    suffix=st.sampled_from([".csv", ".tsv", ".csv.gz"]),
    ids=st.sampled_from(["{}", "v{}", "10{:02d}", "Vertex No {}"]),
)
def test_tables(tmp_path, capsys, seed, directed, weighted, separator, suffix, ids):
    graph = sample(seed, directed, weighted)
    said = imported(tmp_path, capsys, *edge_tables(tmp_path, graph, separator, suffix, ids.format))
    got = loaded(tmp_path / "g.npz")
    # Classes that do not begin at 0 are numbered anew, under their names.
    stored = np.load(tmp_path / "g.npz")
    if "class_names" in stored:
        names = np.append(stored["class_names"].astype(np.int32), -1)
        got = got.replace(labels=names[got.labels])
    assert_same(got, graph)
    assert ("renumbered" in said) == (ids != "{}")
    assert ("directed, as asked" in said) == directed and ("taken as undirected" in said) == (not directed)


def test_tables_without_names_and_without_ids(tmp_path, capsys):
    graph = sample(3)
    arguments = edge_tables(tmp_path, graph, ids=str, header=False)
    write_table(tmp_path / "features.csv", graph.features.tolist())
    write_table(tmp_path / "labels.csv", [[max(label, -1)] for label in graph.labels.tolist()])
    imported(tmp_path, capsys, *arguments, "--rows-in-order", "--no-header")
    assert_same(loaded(tmp_path / "g.npz"), graph, split=False)


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


def test_the_summary_says_what_was_found_and_assumed(tmp_path, capsys):
    said = imported(tmp_path, capsys, *write(tmp_path, edges="source,target\na,b\nb,a\na,b\nc,c\nb,c\n"))
    for words in (
        "5 vertices, 5 directed edges, 2 features, 2 classes",
        "5 listed; taken as undirected (--directed keeps directions)",
        "self-loops  1, kept in the file and not used in training",
        "1 repeated edges, which count once",
        "named, in order of name: 0 = cat, 1 = dog",
        "renumbered 0 to 4; their names are kept as vertex_ids",
        "none in the source: each run draws 60 % train, 20 % val, 20 % test by its seed",
        "line 1 names its columns (source, target)",
    ):
        assert words in said, said
    stored = np.load(tmp_path / "g.npz")
    assert stored["class_names"].tolist() == ["cat", "dog"]
    assert stored["vertex_ids"].tolist() == list("abcde")


def test_label_sets_from_several_columns(tmp_path, capsys):
    imported(
        tmp_path,
        capsys,
        *write(tmp_path, labels="id,red,round\nc,0,1\na,1,1\nb,0,0\nd,1,0\ne,0,0\n"),
        "--drop",
        "label",
    )
    np.testing.assert_array_equal(loaded(tmp_path / "g.npz").labels, [[1, 1], [0, 0], [0, 1], [1, 0], [0, 0]])


@pytest.mark.parametrize(
    "files,more,words",
    [
        ({"edges": "a,b\nb,z\n"}, (), ["edges.csv", "line 2", 'vertex "z" has no row in', "add one"]),
        ({"edges": "a,b\nb,c,2\n"}, (), ["edges.csv", "line 2 has 3 columns", "give every line the same"]),
        ({"edges": "a,b,1\nb,c,heavy\n"}, (), ["line 2", 'column 3 holds "heavy"', "give a finite number"]),
        ({"edges": "a,b,1\nb,c,-2\n"}, (), ["line 2", "weight -2 is negative: give 0 or more"]),
        (
            {"edges": "a,b,1\nb,a,2\n"},
            (),
            ["edges.csv", "edge b -> a weighs 2 and a -> b weighs 1", "or --directed"],
        ),
        ({"edges": "a\nb\n"}, (), ["edges.csv", "has 1 columns: give source, target"]),
        ({"edges": ""}, (), ["edges.csv", "it has no rows"]),
        (
            {"features": "id,x,label\na,1,1\nb,tall,0\nc,1,1\n"},
            (),
            ["features.csv", "line 3", '"tall"', "--drop"],
        ),
        ({"features": "id,x,label\na,1,1\nb,,0\nc,1,1\n"}, (), ["line 3", 'column "x" holds ""']),
        ({"features": "id,x,label\na,1,1\na,2,0\nc,1,1\n"}, (), ["line 3", 'vertex "a" has a row above']),
        (
            {"features": "id,x\na,1\nb,2\nc,3\n"},
            (),
            ["features.csv", "--label-column NAME, or --labels FILE"],
        ),
        ({"features": "id,label\na,1\nb,0\nc,1\n"}, (), ["no column of features"]),
        ({}, ("--label-column", "labl"), ['no column "labl"; did you mean "label"?']),
        ({}, ("--drop", "yy"), ['no column "yy"']),
        ({"labels": "id,label\na,1\nz,0\n"}, ("--drop", "label"), ["labels.csv", "line 3", 'vertex "z"']),
        (
            {"labels": "id,label,split\na,1,train\nb,0,dev\n"},
            ("--drop", "label"),
            ["line 3", 'split "dev"', "give train"],
        ),
        (
            {"labels": "id,p,q\na,1,1\nb,0,2\nc,0,0\nd,0,0\ne,1,1\n"},
            ("--drop", "label"),
            ["line 3", "give 0 or 1 in each"],
        ),
    ],
)
def test_tables_that_cannot_be_used_are_one_sentence(tmp_path, capsys, files, more, words):
    said = refused(tmp_path, capsys, *write(tmp_path, **files), *more)
    for word in words:
        assert word in said, said


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path, capsys):
    arguments = write(tmp_path)
    (tmp_path / "edges.csv").write_bytes(b"\xff\xfe\x00a,b\n\x9f")
    assert "edges.csv" in refused(tmp_path, capsys, *arguments)
    assert "is not there" in refused(tmp_path, capsys, "edges", tmp_path / "no.csv", *arguments[2:])
    for kind in ("pyg", "networkx"):
        assert "is not there" in refused(tmp_path, capsys, kind, tmp_path / "no.json")
    assert "did you mean" in refused(tmp_path, capsys, "networkx", tmp_path / "no.graphm")


def test_repeated_edges_add_up_their_weights(tmp_path, capsys):
    said = imported(tmp_path, capsys, *write(tmp_path, edges="a,b,1\nb,c,2\na,b,0.5\n"))
    assert "1 repeated edges, whose weights are added up" in said
    assert sorted(loaded(tmp_path / "g.npz").weights.tolist()) == [1.5, 1.5, 2, 2]


@pytest.mark.parametrize("kind", ["", "edges", "pyg", "dgl", "ogb", "networkx", "scipy"])
def test_help_is_there(capsys, kind):
    with pytest.raises(SystemExit) as end:
        main([*([kind] if kind else []), "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and ("--out" in said if kind else "scipy" in said)


def test_a_file_that_is_there_is_kept(tmp_path, capsys):
    arguments = [*map(str, write(tmp_path)), "--out", str(tmp_path / "g.npz")]
    (tmp_path / "g.npz").write_text("mine")
    assert main(arguments) == 2 and "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "g.npz").read_text() == "mine"
    assert main([*arguments[:-1], str(tmp_path / "g.csv")]) == 2 and ".npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"edge_index": None}, "has no edge_index"),
        ({"x": None}, "has no features"),
        ({"y": None}, "has no labels"),
        ({"train_mask": None}, "give all three or none"),
        ({"x": torch.full((16, 2), torch.nan)}, "NaN"),
        ({"edge_index": torch.tensor([[0, 99], [1, 2]])}, "99"),
        ({"x": torch.eye(16).to_sparse()}, "give a dense tensor"),
    ],
)
def test_tensors_that_cannot_be_used_are_one_sentence(tmp_path, capsys, changes, words):
    given = {**tensors_of(sample()), **changes}
    torch.save({name: value for name, value in given.items() if value is not None}, tmp_path / "a.pt")
    said = refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert words in said and "a.pt" in said


def test_an_own_edge_list_trains_in_three_commands(place, capsys):
    """Import, train, table; and a system whose formula has no weights refuses before workers start."""
    folder = place.folder / "own"
    folder.mkdir(exist_ok=True)
    imported(folder, capsys, *edge_tables(folder, sample(5, weighted=True), ids="v{}".format))
    own = f"dataset.path={folder / 'g.npz'}"
    ended = place.run("system=vanilla", own, "epochs=2")
    assert ended.code == 0 and "ignored" not in ended.err, ended.err
    assert report(["table", str(place.results)]) == 0 and "vanilla" in capsys.readouterr().out
    ended = place.run("system=pscgcn", own)
    assert ended.code != 0 and "know no edge weights" in ended.err and "Traceback" not in ended.err
