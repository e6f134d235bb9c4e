"""Real data sets: the eight real ones against their published figures, every format on small files,
downloads.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.data import real
from harness.data.partition.shard import Csr
from harness.data.sets import SETS
from harness.dev.fidelity import homophily
from tests import raw_files
from tests.raw_files import block, dense, refused, small, write

# -- the real files --

MEASURED = [name for name in SETS if SETS[name].homophily is not None]


@pytest.mark.real
@pytest.mark.parametrize("name", MEASURED)
def test_the_real_graph_has_its_published_figures(name, real_data):
    known = SETS[name]
    graph, vertices = block(name).load(real_data, seed=1), known.vertices
    assert (graph.num_vertices, graph.num_edges) == (vertices, known.edges)
    assert (graph.num_features, graph.num_classes) == (known.features, known.classes)
    assert round(homophily(graph), 3) == known.homophily
    assert graph.symmetric
    train, val = int(0.6 * vertices), int(0.2 * vertices)
    split = tuple(int(mask.sum()) for mask in (graph.train, graph.val, graph.test))
    assert split == (known.splits or (train, val, vertices - train - val))
    if name in ("cora", "citeseer"):
        sums = graph.features.sum(axis=1)
        np.testing.assert_allclose(sums[sums != 0], 1, rtol=1e-5)
    elif name != "tolokers":
        words = graph.features
        assert ((words.entries() if isinstance(words, Csr) else words[words != 0]) == 1).all()
    if name == "citeseer":
        assert (np.diff(graph.indptr) == 0).sum() == 48 and (~graph.features.any(axis=1)).sum() == (
            graph.labels < 0
        ).sum() == 15
    if name == "dblp":
        assert (~graph.features.any(axis=1)).sum() == 64


@pytest.mark.real
def test_tolokers_has_ten_splits(real_data):
    first, last = (block("tolokers", mask=mask).load(real_data, seed=1) for mask in (0, 9))
    assert (first.train != last.train).any()
    says = "dataset.mask=10 is out of range: tolokers has 10 own splits, give 0 to 9"
    with pytest.raises(InputError, match=says):
        block("tolokers", mask=10).load(real_data, seed=1)


# -- every format on small files --


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, {}) for name in SETS),
        *(
            (name, {"symmetrise": False})
            for name in ("ogbn-arxiv", "ogbn-papers100m", "tolokers", "amazon-photo")
        ),
    ],
    ids=str,
)
def test_each_format_gives_the_graph_that_was_written(name, changes, tmp_path):
    """Without symmetrise edges point from source to target."""
    what = small(seed=3)
    write(name, tmp_path, what)
    graph = block(name, normalise_features=False, **changes).load(tmp_path, seed=1)
    v = what.num_vertices
    np.testing.assert_array_equal(dense(graph)[:v, :v], what.adjacency(not changes))
    if name == "ogbn-proteins":  # it has none but those of edges
        has_edge = what.adjacency().any(axis=1)
        np.testing.assert_array_equal(graph.features, np.repeat(has_edge[:, None], 8, axis=1))
    else:
        np.testing.assert_array_equal(graph.features[:v], what.features)
    assert graph.name == name and graph.symmetric == (not changes) and graph.features.flags.c_contiguous
    if name in ("yelp", "amazon-products", "ogbn-proteins"):
        np.testing.assert_array_equal(graph.labels, np.eye(4)[what.labels])
        assert graph.multilabel and graph.num_classes == 4
    else:
        np.testing.assert_array_equal(graph.labels[:v], what.labels)
        assert graph.num_classes == 3
    if name == "ogbn-papers100m":
        assert graph.num_vertices == v + 3 and (graph.labels[v:] == -1).all()
    if name in ("cora", "citeseer", "pubmed"):
        assert graph.train.sum() == 12 and graph.test[-10:].all() and graph.val.sum() == v - 22
    elif SETS[name].own_split:
        for mask, kind in ((graph.train, 1), (graph.val, 2), (graph.test, 3)):
            np.testing.assert_array_equal(mask[:v], what.kinds == kind)
    else:
        assert (graph.train.sum(), graph.val.sum(), graph.test.sum()) == (24, 8, 8)


def test_a_vertex_of_proteins_has_the_mean_of_its_edges_features(tmp_path):
    what, rng = small(seed=5), np.random.default_rng(5)
    given = np.round(rng.random((len(what.src), 8)), 6)
    raw_files.write_ogb_edge_features(tmp_path / "ogbn_proteins", what, given)
    graph = block("ogbn-proteins").load(tmp_path, seed=1)
    for vertex in range(what.num_vertices):
        own = [row for u, v, row in zip(what.src, what.dst, given) if vertex in (u, v)]
        np.testing.assert_allclose(graph.features[vertex], np.mean(own, axis=0) if own else 0, rtol=1e-5)
    assert graph.multilabel and graph.symmetric


def test_edge_features_and_labels_that_do_not_fit_are_refused(tmp_path):
    what = small()
    folder = tmp_path / "ogbn_proteins"
    raw_files.write_ogb_edge_features(folder, what, np.ones((len(what.src) - 1, 8)))
    says = f"edge-feat.csv.gz.*{len(what.src) - 1} lines for the {len(what.src)} edges of edge.csv.gz"
    refused("ogbn-proteins", tmp_path, says)
    raw_files.write_ogb_edge_features(folder, what)
    raw_files.write_table(folder / "raw/node-label.csv.gz", 2 * np.ones((40, 3), int))
    refused("ogbn-proteins", tmp_path, "node-label.csv.gz.*from 0 to 2, where two or more columns of 0 and 1")


def test_planetoid_rows_of_ids_that_no_file_describes_are_zero_and_unlabelled(tmp_path):
    what = small()
    test = raw_files.write_planetoid(tmp_path / "CiteSeer", "citeseer", what, missing=(33, 36))
    graph = block("citeseer").load(tmp_path, seed=1)
    assert np.flatnonzero(graph.labels < 0).tolist() == [33, 36] and not graph.features[[33, 36]].any()
    assert np.flatnonzero(graph.test).tolist() == sorted(test)
    np.testing.assert_array_equal(graph.labels[test], what.labels[test])


@pytest.mark.parametrize(("name", "folder"), [("cora", "Planetoid/cora"), ("coauthor-cs", "cs")])
def test_folders_are_found_under_their_usual_names_in_any_case(name, folder, tmp_path):
    usual = write(name, tmp_path / "written", small())
    (tmp_path / "data" / folder).parent.mkdir(parents=True)
    usual.rename(tmp_path / "data" / folder)
    assert block(name).load(tmp_path / "data", seed=1).num_vertices >= 40


def test_a_folder_that_this_user_may_not_enter_holds_nothing(tmp_path, monkeypatch):
    write("reddit", tmp_path, small())
    assert real.present("reddit", tmp_path)

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert not real.present("reddit", tmp_path)


def test_corafull_beside_planetoids_cora(tmp_path):
    write("cora", tmp_path, small(seed=1))
    raw_files.write_attributed(tmp_path / "CoraFull", "cora_full.npz", small(seed=2))
    np.testing.assert_array_equal(block("corafull").load(tmp_path, 1).features, small(seed=2).features)


# -- missing: downloaded, or one sentence --


def test_a_missing_file_is_named_with_its_place_and_its_twin(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no route to host")

    for fetch in ("_fetch_torch_geometric", "_fetch"):
        monkeypatch.setattr(real, fetch, refuse)
    says = refused("reddit", tmp_path / "data", '"Reddit/raw/reddit_data.npz" is missing from data_dir=')
    assert "no route to host" in says and "dataset=twin/reddit" in says
    assert not (tmp_path / "data").exists()
    (write("reddit", tmp_path, small()) / "raw/reddit_graph.npz").unlink()
    with pytest.raises(InputError, match="Reddit/raw/reddit_graph.npz"):
        block("reddit").fingerprint(tmp_path, seed=1)
    assert "twin" not in refused("pubmed", tmp_path, "pubmed: file")


def test_missing_files_are_downloaded_by_torch_geometric(tmp_path, monkeypatch):
    datasets = pytest.importorskip("torch_geometric.datasets")
    monkeypatch.setattr(
        datasets.Flickr, "download", lambda self: raw_files.write_saint(Path(self.raw_dir).parent, small())
    )
    assert block("flickr").load(tmp_path / "data", seed=1).num_vertices == 40
    assert (tmp_path / "data/Flickr/raw/role.json").is_file()
    assert not list((tmp_path / "data").glob(".download*"))


def test_missing_files_are_downloaded_from_ogb(tmp_path, monkeypatch):
    url = pytest.importorskip("ogb.utils.url")

    def download(address: str, folder: str) -> str:
        assert address.endswith("/arxiv.zip")
        raw_files.write_ogb_tables(tmp_path / "arxiv", "time", small())
        return shutil.make_archive(f"{folder}/arxiv", "zip", tmp_path, "arxiv")

    monkeypatch.setattr(url, "download_url", download)
    assert block("ogbn-arxiv").load(tmp_path / "data", seed=1).num_vertices == 40
    assert (tmp_path / "data/ogbn_arxiv/split/time/valid.csv.gz").is_file()
