"""Who owns each vertex: balance, determinism, what METIS is asked, and refusals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.csr import from_edges
from harness.data.partition.assign import EdgeCutPartitioner, assign, fill_empty
from harness.data.partition.fennel import Fennel
from tests.graphs import edge_list, graphs, of_pattern, random_graph
from tests.pieces import EDGE_CUTS


def cut(graph, assignment) -> int:
    source, target = edge_list(graph)
    return int((assignment[source] != assignment[target]).sum())


class Given(EdgeCutPartitioner):
    """Answers what it is told."""

    def __init__(self, owners):
        super().__init__()
        self.owners = owners

    def vertex_owners(self, graph, parts, seed):
        return self.owners


@given(graphs(), st.sampled_from(sorted(EDGE_CUTS)), st.integers(1, 8), st.integers(0, 2**40))
def test_every_part_owns_a_vertex_and_the_seed_decides(graph, name, parts, seed):
    """Of every edge-cut of conf/partition."""
    parts, method = min(parts, graph.num_vertices), EDGE_CUTS[name]
    owners = assign(graph, method, parts, seed)
    assert owners.shape == (graph.num_vertices,) and owners.dtype == np.int32
    sizes = np.bincount(owners, minlength=parts)
    assert len(sizes) == parts and sizes.min() >= 1
    if name in ("random", "block"):
        assert sizes.max() - sizes.min() <= 1
    if name == "block":
        assert (np.diff(owners) >= 0).all()
    assert np.array_equal(owners, assign(graph, method, parts, seed))


@pytest.mark.parametrize("name", EDGE_CUTS)
def test_another_seed_is_another_partition_where_chance_decides(name):
    graph, method = random_graph(400, 6), EDGE_CUTS[name]
    first, other = (assign(graph, method, 4, seed) for seed in (0, 1))
    assert np.array_equal(first, other) == (not method.drawn)


@pytest.mark.parametrize("name", sorted(set(EDGE_CUTS) - {"random"}))
def test_whoever_looks_at_edges_cuts_fewer_than_chance(name):
    """Two cliques whose ids are not mixed."""
    half = np.zeros((40, 40), bool)
    half[:20, :20] = half[20:, 20:] = True
    np.fill_diagonal(half, False)
    graph = of_pattern(half)
    assert cut(graph, assign(graph, EDGE_CUTS[name], 2, 0)) < cut(graph, assign(graph, "random", 2, 0))


def test_metis_is_given_no_self_loops():
    plain = random_graph(400, 6)
    source, target = edge_list(plain)
    looped = np.arange(0, 400, 2, dtype=np.int32)
    edges = from_edges(np.append(source, looped), np.append(target, looped), 400, symmetrise=False)
    graph = plain.replace(indptr=edges.indptr, indices=edges.indices)
    assert graph.num_edges == plain.num_edges + 200
    assert np.array_equal(assign(graph, "metis", 4, 0), assign(plain, "metis", 4, 0))


def test_metis_is_given_both_directions_of_a_directed_edge():
    """A path stored in one direction only: METIS cuts it once, which it can only do knowing both."""
    n = 64
    order = np.random.default_rng(0).permutation(n)
    a = np.zeros((n, n), bool)
    a[order[1:], order[:-1]] = True
    graph = of_pattern(a)
    assert not graph.symmetric
    assert cut(graph, assign(graph, "metis", 2, 0)) == 1


@given(graphs(), st.integers(2, 4), st.floats(1.1, 3.0), st.sampled_from([1.0, 1.1, 2.0]))
def test_fennel_follows_its_equation(graph, parts, gamma, nu):
    n, parts = graph.num_vertices, min(parts, graph.num_vertices)
    source, target = edge_list(graph)
    near = np.zeros((n, n), bool)
    near[source, target] = near[target, source] = True
    np.fill_diagonal(near, False)
    alpha = near.sum() / 2 * parts ** (gamma - 1) / n**gamma
    most = max(math.ceil(n / parts), int(nu * n / parts))
    owners = np.full(n, -1)
    for v in range(n):
        sizes = np.bincount(owners[owners >= 0], minlength=parts)
        scores = {
            i: (near[v] & (owners == i)).sum() - alpha * gamma * float(sizes[i]) ** (gamma - 1)
            for i in range(parts)
            if sizes[i] < most
        }
        owners[v] = max(scores, key=lambda i: (scores[i], -sizes[i], -i))
    found = Fennel(gamma=gamma, nu=nu, order="given").vertex_owners(graph, parts, 0)
    assert found.tolist() == owners.tolist()
    assert [Fennel(order=order).seed_of(2, 7) for order in ("given", "random")] == [None, 7]


def test_an_empty_part_takes_half_of_the_largest():
    assert np.bincount(fill_empty(np.array([0] * 9 + [3]), 4)).tolist() == [3, 4, 2, 1]
    assert np.bincount(fill_empty(np.array([2, 2, 2]), 3)).tolist() == [1, 1, 1]
    given = assign(random_graph(10, 3), Given(np.zeros(10, np.int64)), 3, 0)
    assert np.bincount(given).tolist() == [3, 5, 2] and given.dtype == np.int32


@pytest.mark.parametrize(
    "method, parts, sentence",
    [
        ("metsi", 2, 'partition.method="metsi" is not known; did you mean "metis"?'),
        ("random", 0, "workers=0 is too small: give 1 or more"),
        ("metis", 11, "workers=11 is more workers than random has vertices (10); give 10 or fewer"),
    ],
)
def test_refusals(method, parts, sentence):
    with pytest.raises(InputError) as caught:
        assign(random_graph(10, 3), method, parts, 0)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "owners, said",
    [
        (np.zeros(9, int), r"partition=given gave int64 of shape \[9\] as owners of each vertex"),
        (np.zeros(10), r"gave float64 of shape \[10\] .* it must give integers of shape \[10\]"),
        (np.arange(10), r"gave owners 0 to 9; with workers=3 it must give 0 to 2"),
    ],
)
def test_what_a_partitioner_answers_is_held_to_what_it_must(owners, said):
    with pytest.raises(InputError, match=said):
        assign(random_graph(10, 3), Given(owners), 3, 0)
