"""Who owns each vertex: balance, determinism, what METIS is asked, with several constraints and as DistDGL
extends it too; ByteGNN's partitioner against a replay of its formulas in plain Python; refusals.
"""

import importlib.metadata
import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.base.target import made
from harness.data.csr import from_edges
from harness.data.partition.assign import EdgeCutPartitioner, Metis, assign, fill_empty, pattern
from harness.data.partition.balanced import DGLS, WEIGHTS, Balanced
from harness.data.partition.config import Partitioner
from harness.data.partition.extended import Extended
from harness.data.partition.fennel import Fennel
from harness.data.partition.neighbourhood import UNREACHED, Neighbourhood, blocks
from tests.graphs import edge_list, graphs, of_pattern, random_graph
from tests.pieces import EDGE_CUTS, has_metis


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


def test_a_pattern_with_more_entries_than_its_type_counts_is_refused():
    """METIS 5.2 has 32-bit ids; here 8 bits stand in for them."""
    with pytest.raises(InputError, match=r"random has \d+ directed edges, and .* counts to 127; give"):
        pattern(random_graph(100, 6), np.dtype(np.int8))


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


def in_edges(graph) -> list[set[int]]:
    return [
        {int(u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]} - {v}
        for v in range(graph.num_vertices)
    ]


def distances(sources: list[set[int]], start: int) -> dict[int, int]:
    """Hops along in-edges from `start`."""
    found, queue = {start: 0}, deque([start])
    while queue:
        v = queue.popleft()
        for u in sources[v] - found.keys():
            found[u] = found[v] + 1
            queue.append(u)
    return found


@given(graph=graphs(max_vertices=25), hops=st.integers(0, 4), data=st.data())
def test_a_vertex_joins_the_nearest_centre_within_reach_and_of_these_the_first(graph, hops, data):
    n = graph.num_vertices
    centres = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    reach = {int(c): distances(in_edges(graph), int(c)) for c in np.flatnonzero(centres)}
    for v, centre in enumerate(blocks(graph, centres, hops)):
        near = sorted((found[v], c) for c, found in reach.items() if found.get(v, hops + 1) <= hops)
        assert centre == (near[0][1] if near else UNREACHED)
        assert centre == v or not centres[v]


def check_replay(graph, parts: int, how: Neighbourhood, found: np.ndarray) -> None:
    """Algorithm 2, a block at a time: each goes to a part of highest score, and of parts that are alike to
    the first."""
    sources, n = in_edges(graph), graph.num_vertices
    touching = [{*us, *(w for w in range(n) if v in sources[w])} for v, us in enumerate(sources)]
    splits = {"train": graph.train, "val": graph.val, "test": graph.test}
    weights = {"train": how.alpha, "val": how.beta, "test": how.gamma}
    centres = graph.train if how.centres == "train" else graph.train | graph.val | graph.test
    centre = blocks(graph, centres, how.hops)
    members = {int(c): np.flatnonzero(centre == c) for c in np.unique(centre) if c != UNREACHED}

    def rank(c: int) -> tuple[int, int]:
        printed = max(int(mask[members[c]].sum()) for mask in splits.values())
        return -(printed if how.literal else len(members[c])), c

    owners = np.full(n, -1)
    line = [(True, members[c]) for c in sorted(members, key=rank)]
    line += [(False, np.array([v])) for v in np.flatnonzero(centre == UNREACHED)]
    for labelled, block in line:
        (chosen,) = set(found[block].tolist())
        scores, facts = [], []
        for j in range(parts):
            part = owners == j
            shared = sum(owners[w] == j for v in block for w in touching[v])
            facts.append((shared, part.sum(), *((part & mask).sum() for mask in splits.values())))
            crossing = shared / part.sum() if part.any() else 0.0
            if labelled:
                balance = 1 - sum(
                    weights[s] * (part & mask).sum() / (mask.sum() / parts)
                    for s, mask in splits.items() if mask.any()
                )  # fmt: skip
            else:
                balance = 1 - part.sum() * parts / n
            scores.append((crossing + (not how.literal or not labelled)) * balance)
        assert math.isclose(scores[chosen], max(scores), abs_tol=1e-12)
        assert facts.index(facts[chosen]) == chosen
        owners[block] = chosen
    assert (owners == found).all()


@given(
    graph=graphs(min_vertices=4, max_vertices=25),
    parts=st.integers(2, 4),
    literal=st.booleans(),
    centres=st.sampled_from(["labelled", "train"]),
    weights=st.sampled_from([(1 / 3, 1 / 3, 1 / 3), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]),
    hops=st.integers(0, 3),
)
def test_parts_are_those_of_the_printed_formulas(graph, parts, literal, centres, weights, hops):
    how = Neighbourhood(None, hops, centres, literal, *weights)
    found = how.vertex_owners(graph, parts, 0)
    assert found.dtype == np.int32 and ((found >= 0) & (found < parts)).all()
    check_replay(graph, parts, how, found)


def test_centres_of_no_known_kind_are_one_sentence():
    block = {"_target_": "harness.data.partition.neighbourhood.Neighbourhood", "centres": "tran"}
    with pytest.raises(InputError, match='partition.centres="tran" is not known; did you mean "train"'):
        made(block, "partition", Partitioner)
