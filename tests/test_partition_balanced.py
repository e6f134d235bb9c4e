"""METIS with several constraints, and as DistDGL extends it."""

import importlib.metadata

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.data.csr import from_edges
from harness.data.partition.assign import Metis, assign
from harness.data.partition.balanced import DGLS, WEIGHTS, Balanced
from harness.data.partition.extended import Extended
from tests.graphs import random_graph
from tests.pieces import has_metis

needs_metis = pytest.mark.skipif(not has_metis(), reason="cmeel-metis is not installed")


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
def test_extended_with_metis_own_values_is_metis():
    graph = random_graph(3000, 12.0, seed=1)
    plain = Balanced(balance=["vertices"]).vertex_owners(graph, 4, 1)
    own = {"drop_edges": False, "on_disk": False, "initial": None, "refinements": 10}
    assert np.array_equal(Extended(**own).vertex_owners(graph, 4, 1), plain)
    for knob in ("drop_edges", "initial", "refinements"):
        changed = Extended(**{**own, knob: getattr(Extended(), knob)}).vertex_owners(graph, 4, 1)
        assert not np.array_equal(changed, plain), knob
    assert np.array_equal(Extended(**{**own, "on_disk": True}).vertex_owners(graph, 4, 1), plain)
