"""Vertex-cut partitions: every edge once, balance, EBV against its definition, Table 3's columns against a
count.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.graph import Graph
from harness.data.partition import dne, hep
from harness.data.partition.assign import Metis, assign
from harness.data.partition.config import VertexCutPartitioner
from harness.data.partition.vertexcut import (
    EDGE_METHODS,
    MASTER_RULES,
    EdgeAssignment,
    assign_edges,
    statistics,
)
from tests.graphs import edge_list, graphs, of_pattern, random_graph, star
from tests.pieces import PARTITIONERS

HOSTED = st.sampled_from([(1, 1), (2, 1), (2, 2), (3, 1), (4, 2), (6, 3)])  # workers, hosts


def pairs(graph) -> list[tuple[int, int]]:
    source, target = edge_list(graph)
    return sorted({(min(u, v), max(u, v)) for u, v in zip(source.tolist(), target.tolist()) if u != v})


@st.composite
def assignments(draw) -> tuple[Graph, EdgeAssignment]:
    graph = draw(graphs(min_vertices=6))
    parts, hosts = draw(HOSTED)
    method, tau = draw(st.sampled_from(EDGE_METHODS)), draw(st.sampled_from([0.3, 1.0, 10.0]))
    knobs = {"hosts": hosts, **({"tau": tau} if method == "hep" else {})}
    return graph, assign_edges(graph, method, parts, draw(st.integers(0, 9)), **knobs)


@given(
    graphs(min_vertices=6),
    HOSTED,
    st.sampled_from([0.3, 1.0, 10.0]),
    st.sampled_from([None, 1.0, 1.3, 2.0]),
    st.integers(0, 9),
)
def test_expansion_keeps_its_bound_on_balance(graph, workers, tau, imbalance, seed):
    parts, edges = workers[0], len(pairs(graph))
    for method, usual in (("hep", hep.IMBALANCE), ("dne", dne.IMBALANCE)):
        knobs = {"tau": tau} if method == "hep" else {}
        if imbalance is not None:
            knobs["imbalance"] = imbalance
        owner = assign_edges(graph, method, parts, seed, **knobs).owner
        assert np.bincount(owner, minlength=parts).max() <= np.ceil((imbalance or usual) * edges / parts)


@pytest.mark.parametrize("method, knobs", [("hep", {"tau": 0.01}), ("dne", {})])
def test_a_hub_is_shared_out_no_further_than_the_imbalance_says(method, knobs):
    """A star, whose edges are all of one vertex; hep streams all of them."""
    owner = assign_edges(star(40), method, 4, 0, imbalance=3.0, **knobs).owner
    assert 10 < np.bincount(owner, minlength=4).max() <= 30


def ebv_by_definition(edges, vertices, parts, gamma, hosts) -> list[int]:
    """Equation (24), term by term, with sets."""
    degree = np.bincount(np.array(edges, int).ravel(), minlength=vertices)
    order = sorted(range(len(edges)), key=lambda e: (degree[edges[e][0]] + degree[edges[e][1]], e))
    d_rep, h_rep = [set() for _ in range(vertices)], [set() for _ in range(vertices)]
    part_edges, part_vertices = [0] * parts, [set() for _ in range(parts)]
    host = [i // (parts // hosts) for i in range(parts)]
    owner = [-1] * len(edges)
    for e in order:
        u, v = edges[e]
        cost = [
            (1 - gamma) * ((i not in d_rep[u]) + (i not in d_rep[v]))
            + gamma * ((host[i] not in h_rep[u]) + (host[i] not in h_rep[v]))
            + part_edges[i] * parts / len(edges)
            + len(part_vertices[i]) * parts / vertices
            for i in range(parts)
        ]
        i = owner[e] = int(np.argmin(cost))
        part_edges[i] += 1
        part_vertices[i] |= {u, v}
        for w in (u, v):
            d_rep[w].add(i)
            h_rep[w].add(host[i])
    return owner


@given(graphs(min_vertices=6), HOSTED, st.sampled_from([0.0, 0.1, 1.0]))
def test_ebv_is_equation_24(graph, workers, gamma):
    parts, hosts = workers
    have = assign_edges(graph, "ebv", parts, 0, gamma=gamma, hosts=hosts)
    assert have.owner.tolist() == ebv_by_definition(pairs(graph), graph.num_vertices, parts, gamma, hosts)


@given(assignments(), st.sampled_from(MASTER_RULES))
def test_every_undirected_edge_has_one_owner_and_statistics_equal_a_count_by_hand(case, rule):
    graph, edges = case
    want = pairs(graph)
    assert list(zip(edges.low.tolist(), edges.high.tolist())) == want
    assert edges.owner.dtype == np.int32 and len(edges.owner) == len(want)
    assert len(want) == 0 or (edges.owner.min() >= 0 and edges.owner.max() < edges.parts)
    have = statistics(edges, rule)
    indptr, worker = edges.replicas()
    held = [set(worker[indptr[v] : indptr[v + 1]].tolist()) for v in range(edges.num_vertices)]
    touching = [set() for _ in range(edges.num_vertices)]
    for (u, v), owner in zip(want, edges.owner.tolist()):
        touching[u].add(owner)
        touching[v].add(owner)
    masters = edges.masters(rule)
    for v in range(edges.num_vertices):
        assert held[v] == touching[v] or (not touching[v] and len(held[v]) == 1)
        assert masters[v] in held[v]
    inner, outer = [0] * edges.parts, [0] * edges.parts
    per_host = edges.parts // edges.hosts
    for v, master in enumerate(masters.tolist()):
        for mirror in held[v] - {master}:
            kind = inner if mirror // per_host == master // per_host else outer
            kind[mirror] += 1  # gather
            kind[master] += 1  # scatter
    assert (have["inner"], have["outer"]) == (inner, outer)
    assert (have["max_inner"], have["max_outer"]) == (max(inner), max(outer))
    assert sum(inner) + sum(outer) == 2 * (sum(len(h) for h in held) - edges.num_vertices)
    per_worker = [int((edges.owner == p).sum()) for p in range(edges.parts)]
    assert have["edges"] == per_worker
    assert have["replicas"] == [sum(p in h for h in held) for p in range(edges.parts)]
    assert have["replication"] == pytest.approx(sum(len(h) for h in held) / edges.num_vertices)
    assert have["edge_imbalance"] == pytest.approx(
        max(per_worker) / max(len(want) / edges.parts, 1 / edges.parts)
    )
    mean = sum(have["replicas"]) / edges.parts
    assert have["vertex_imbalance"] == pytest.approx(max(have["replicas"]) / mean)


def communities():
    """A symmetric graph of eight dense groups of 100, few edges between them, ids shuffled."""
    rng = np.random.default_rng(0)
    group = rng.permutation(800) % 8
    chance = np.where(group[:, None] == group[None, :], 0.2, 0.001)
    a = np.triu(rng.random(chance.shape) < chance, 1)
    return of_pattern(a | a.T)


def test_growing_along_neighbours_replicates_less_than_streaming():
    graph = communities()
    rf = {method: statistics(assign_edges(graph, method, 8, 0))["replication"] for method in EDGE_METHODS}
    assert rf["hep"] < 0.7 * rf["ebv"] and rf["dne"] < 0.8 * rf["ebv"] and rf["metis/edges"] < rf["ebv"]


@given(graphs(min_vertices=6), HOSTED)
def test_edges_follow_the_parts_of_metis(graph, workers):
    """Of an edge between two of METIS's parts the end with more edges is replicated."""
    parts, hosts = workers
    part = assign(graph, Metis(hosts=hosts), parts, 3)
    edges = assign_edges(graph, "metis/edges", parts, 3, hosts=hosts)
    degree = np.bincount(np.concatenate([edges.low, edges.high]), minlength=graph.num_vertices)
    for u, v, owner in zip(edges.low.tolist(), edges.high.tolist(), edges.owner.tolist()):
        assert owner == part[u if degree[u] <= degree[v] else v]


def test_high_vertices_are_streamed_to_where_they_already_are():
    """With a small tau most edges are streamed; HDRF still replicates far less than chance would."""
    graph = communities()
    edges = assign_edges(graph, "hep", 8, 0, tau=0.8)
    chance = EdgeAssignment(
        800, 8, 1, edges.low, edges.high, np.random.default_rng(0).permutation(edges.owner)
    )
    assert statistics(edges)["replication"] < 0.75 * statistics(chance)["replication"]


@pytest.mark.parametrize("method", EDGE_METHODS)
def test_the_seed_decides(method):
    graph = random_graph(500, 8)
    first = assign_edges(graph, method, 4, 1).owner
    assert np.array_equal(first, assign_edges(graph, method, 4, 1).owner)
    assert np.array_equal(first, assign_edges(graph, method, 4, 2).owner) == (method == "ebv")


def test_masters_are_spread_over_the_replicas():
    edges = assign_edges(random_graph(2000, 30), "ebv", 4, 0, hosts=2)
    for rule in MASTER_RULES:
        counts = np.bincount(edges.masters(rule), minlength=4)
        assert counts.max() < 1.15 * counts.mean()


def test_a_master_is_on_the_host_of_most_replicas_by_default_which_sends_least_between_hosts():
    assert {cut.masters for cut in PARTITIONERS.values() if isinstance(cut, VertexCutPartitioner)} == {"host"}
    edges = assign_edges(random_graph(500, 12), "ebv", 6, 0, hosts=3)
    indptr, worker = edges.replicas()
    for v, master in enumerate(edges.masters().tolist()):
        on_host = np.bincount(worker[indptr[v] : indptr[v + 1]] // 2, minlength=3)
        assert on_host[master // 2] == on_host.max()
    by_host, by_hash = (sum(statistics(edges, rule)["outer"]) for rule in ("host", "hash"))
    assert by_host < 0.95 * by_hash


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"method": "ebw"}, 'partition.method="ebw" is not known; did you mean "ebv"?'),
        ({"parts": 11}, "workers=11 is more workers than random has vertices (10); give 10 or fewer"),
        ({"hosts": 3}, "hosts=3 does not divide workers=4; give a divisor of it"),
        ({"masters": "hosts"}, 'partition.masters="hosts" is not known; did you mean "host"?'),
        ({"tau": 3}, "partition.tau is not a key of Ebv; known: gamma, hosts, masters, seed"),
    ],
)
def test_refusals(arguments, sentence):
    with pytest.raises(InputError) as caught:
        assign_edges(random_graph(10, 3), **{"method": "ebv", "parts": 4, "seed": 0, **arguments})
    assert str(caught.value).startswith(sentence)
