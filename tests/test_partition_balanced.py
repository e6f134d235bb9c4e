"""METIS with several constraints, and as DistDGL extends it."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.data.csr import from_edges
from harness.data.partition import extended, metis_library
from harness.data.partition.assign import Metis, assign
from harness.data.partition.balanced import DGLS, WEIGHTS, Balanced
from harness.data.partition.extended import Extended
from tests.graphs import random_graph


def there() -> bool:
    try:
        return bool(metis_library.library("partition=metis/balanced"))
    except InputError:
        return False


needs_metis = pytest.mark.skipif(not there(), reason="cmeel-metis is not installed")


def lopsided():
    """A graph of 8 communities in a ring, of which two hold all training vertices."""
    graph = random_graph(800, 3.0, seed=1)
    source = np.repeat(np.arange(800), 12)
    target = source // 100 * 100 + np.random.default_rng(1).integers(0, 100, len(source))
    edges = from_edges(
        np.concatenate([source, np.arange(0, 800, 100)]).astype(np.int32),
        np.concatenate([target, (np.arange(0, 800, 100) + 100) % 800]).astype(np.int32),
        800, symmetrise=True, self_loops=False,
    )  # fmt: skip
    train = np.arange(800) < 200
    none = np.zeros(800, bool)
    return graph.replace(
        indptr=edges.indptr, indices=edges.indices, symmetric=True, train=train, val=none, test=none,
        labels=np.zeros(800, np.int32),
    )  # fmt: skip


def share(weights: np.ndarray, owners: np.ndarray) -> float:
    """The largest part over the mean."""
    sums = np.bincount(owners, weights, minlength=4)
    return sums.max() / sums.mean()


@needs_metis
def test_every_part_gets_its_share_of_each_constraint():
    graph = lopsided()
    plain, owners = assign(graph, Metis(), 4, 1), assign(graph, Balanced(), 4, 1)
    assert share(graph.train, plain) > 1.5, "without the constraints this tests nothing"
    for name in DGLS:
        assert share(WEIGHTS[name](graph), owners) < 1.1, name
    assert np.array_equal(owners, assign(graph, Balanced(), 4, 1))
    assert not np.array_equal(owners, assign(graph, Balanced(), 4, 2))
    directed = graph.replace(symmetric=False)
    assert np.array_equal(owners, assign(directed, Balanced(), 4, 1)), "it goes by the undirected pattern"


def test_constraints_are_what_their_names_say():
    graph = lopsided()
    how = Balanced(balance=["vertices", "edges", "train", "val", "rest_edges"])
    weights = how.constraints(graph)
    assert weights.shape == (800, 4), "no vertex validates, so that this constraint is left out"
    degree = graph.in_degrees()
    assert weights.sum(0).tolist() == [800, degree.sum(), 200, degree[200:].sum()]
    assert Balanced(balance=["val"]).constraints(graph).tolist() == [[1]] * 800
    assert Extended(balance=["train", "rest"]).constraints(graph).sum(0).tolist() == [200, 600]


def test_where_metis_is_not_installed_one_sentence_says_so(monkeypatch):
    def missing(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(InputError, match=r"needs METIS of cmeel-metis \(.*\); give partition=metis, or pip"):
        assign(lopsided(), Balanced(), 4, 1)


@pytest.mark.parametrize(
    "balance, says", [([], "balance=.* is empty"), (["trian"], 'balance="trian" is not known; did you mean')]
)
def test_bad_constraints_are_one_sentence(balance, says):
    with pytest.raises(InputError, match=says):
        Balanced(balance=balance)


@needs_metis
def test_options_stand_where_metis_has_them():
    """By the header that the package brings: an enumeration from 0."""
    files = importlib.metadata.files("cmeel-metis") or []
    header = next(path for path in files if path.name == "metis.h").read_text()
    names = re.findall(r"^\s*METIS_OPTION_(\w+)", header, re.M)
    assert {name: names.index(name.upper()) for name in metis_library.PLACES} == metis_library.PLACES


@needs_metis
def test_extended_with_metis_own_values_is_metis():
    graph = random_graph(3000, 12.0, seed=1)
    plain = Balanced(balance=["vertices"]).vertex_owners(graph, 4, 1)
    own = {"drop_edges": False, "on_disk": False, "initial": None, "refinements": 10}
    assert np.array_equal(Extended(**own).vertex_owners(graph, 4, 1), plain)
    for knob in ("drop_edges", "initial", "refinements"):
        changed = Extended(**{**own, knob: getattr(Extended(), knob)}).vertex_owners(graph, 4, 1)
        assert not np.array_equal(changed, plain), knob
    assert np.array_equal(Extended(**{**own, "on_disk": True}).vertex_owners(graph, 4, 1), plain)


@needs_metis
def test_what_metis_writes_stands_in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    stood = []

    def writes(*args):
        (Path.cwd() / "metis1.2").write_text("")
        stood.append((Path.cwd(), args[-1]["ondisk"]))
        return np.zeros(60, np.int32)

    monkeypatch.setattr(extended, "kway", writes)
    graph = random_graph(60, 5)
    Extended().vertex_owners(graph, 2, 1)
    Extended(on_disk=False).vertex_owners(graph, 2, 1)
    assert stood[0][0] != tmp_path and not stood[0][0].exists() and stood == [(stood[0][0], 1), (tmp_path, 0)]
    assert Path.cwd() == tmp_path and [path.name for path in tmp_path.iterdir()] == ["metis1.2"]
