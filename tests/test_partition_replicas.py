"""Shards of a vertex-cut: together they are the graph, every vertex has one master, and both ends of a
message agree on its rows.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base.target import made
from harness.data.graph import Graph
from harness.data.partition import io
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.cache import Cache, shards_for
from harness.data.partition.config import EDGE_METHODS, MASTER_RULES, Partitioner
from harness.data.partition.shard import ReplicaShard
from harness.data.partition.vertexcut import CUTS, EdgeAssignment, assign_edges, statistics
from tests.conftest import ROOT
from tests.graphs import graphs, random_graph
from tests.test_partition_shards import plain_edges, same


@st.composite
def partitions(draw) -> tuple[Graph, EdgeAssignment, str, list[ReplicaShard]]:
    graph = draw(graphs(min_vertices=4))
    parts, hosts = draw(st.sampled_from([(1, 1), (2, 2), (3, 1), (4, 2)]))
    method = draw(st.sampled_from(EDGE_METHODS))
    knobs = {"hosts": hosts, **({"tau": 1.0} if method == "hep" else {})}
    edges = assign_edges(graph, method, parts, draw(st.integers(0, 9)), **knobs)
    rule = draw(st.sampled_from(MASTER_RULES))
    return graph, edges, rule, list(build_replicas(graph, edges, rule))


def local_edges(shard: ReplicaShard) -> list[tuple[int, int]]:
    """(target, source) in global ids."""
    target = np.repeat(shard.vertices, np.diff(shard.edges.indptr))
    return list(zip(target.tolist(), shard.vertices[shard.edges.indices].tolist()))


@given(partitions())
def test_every_edge_is_on_its_owner_and_nowhere_else(partition):
    graph, edges, _, shards = partition
    owner = {(u, v): p for u, v, p in zip(edges.low.tolist(), edges.high.tolist(), edges.owner.tolist())}
    everything = []
    for shard in shards:
        here = local_edges(shard)
        assert all(owner[min(edge), max(edge)] == shard.rank for edge in here)
        assert shard.edges.num_columns == shard.edges.num_rows == shard.num_replicas
        if graph.symmetric:
            assert sorted(here) == sorted((u, v) for v, u in here)
        everything += here
    assert sorted(everything) == sorted(plain_edges(graph))


@given(partitions())
def test_every_vertex_has_one_master_and_a_replica_where_its_edges_are(partition):
    graph, edges, rule, shards = partition
    masters = edges.masters(rule)
    indptr, worker = edges.replicas()
    for shard in shards:
        n = shard.num_masters
        assert shard.vertices[:n].tolist() == np.flatnonzero(masters == shard.rank).tolist()
        mirrors = shard.vertices[n:]
        assert mirrors.tolist() == sorted(mirrors.tolist(), key=lambda v: (masters[v], v))
        held = [v for v in range(graph.num_vertices) if shard.rank in worker[indptr[v] : indptr[v + 1]]]
        assert sorted(shard.vertices.tolist()) == held
        assert np.array_equal(shard.mirror_counts, np.bincount(masters[mirrors], minlength=len(shards)))
        assert shard.mirror_counts[shard.rank] == 0
        assert np.array_equal(shard.sizes, np.bincount(masters, minlength=len(shards)))
        for v, row in zip(mirrors, shard.mirror_rows):
            assert shards[masters[v]].vertices[row] == v
    owned = np.concatenate([shard.vertices[: shard.num_masters] for shard in shards])
    assert sorted(owned.tolist()) == list(range(graph.num_vertices))


@given(partitions())
def test_what_a_mirror_sends_is_what_its_master_expects(partition):
    shards = partition[3]
    for shard in shards:
        assert shard.copy_counts[shard.rank] == 0
        expected = np.split(shard.vertices[shard.copy_rows], np.cumsum(shard.copy_counts)[:-1])
        for peer in shards:
            sent = np.split(peer.vertices[peer.num_masters :], np.cumsum(peer.mirror_counts)[:-1])
            assert np.array_equal(sent[shard.rank], expected[peer.rank])


@given(partitions())
def test_replicas_carry_their_vertex(partition):
    graph, _, _, shards = partition
    for shard in shards:
        own = shard.vertices[: shard.num_masters]
        for name in ("labels", "train", "val", "test"):
            assert same(getattr(shard, name), getattr(graph, name)[own]), name
        assert same(shard.features, graph.features[shard.vertices])
        assert np.array_equal(shard.degrees, graph.in_degrees()[shard.vertices]), (
            "degrees are those of the whole graph"
        )
        assert shard.split_counts.tolist() == [graph.train.sum(), graph.val.sum(), graph.test.sum()]
        for name in ("vertices", "degrees", "mirror_rows", "copy_rows"):
            assert getattr(shard, name).dtype == np.int32, name
        assert shard.edges.indptr.dtype == shard.edges.indices.dtype == np.int32


@given(partitions())
def test_a_saved_shard_comes_back_bit_for_bit(tmp_path_factory, partition):
    folder = tmp_path_factory.mktemp("shards")
    for shard in partition[3]:
        io.save(shard, folder)
        loaded = io.load(folder, shard.rank)
        assert type(loaded) is ReplicaShard
        for field in dataclasses.fields(ReplicaShard):
            assert same(getattr(shard, field.name), getattr(loaded, field.name)), field.name


@pytest.mark.parametrize("method", EDGE_METHODS)
def test_the_cache_holds_shards_and_table_3(tmp_path, method):
    graph, calls = random_graph(60, 6), []

    def load():
        calls.append(1)
        return graph

    ask = lambda **keys: shards_for(Cache(tmp_path), {"name": "g"}, load, CUTS[method](**keys), 4, seed=5)
    folder = ask(hosts=2)
    assert ask(hosts=2) == folder and len(calls) == 1, "made once"
    assert ask(hosts=1) != folder and ask(hosts=2, masters="host") == folder
    hashed = ask(hosts=2, masters="hash")
    assert hashed != folder, "shards of another rule of masters are other shards"
    masters = assign_edges(graph, method, 4, 5, hosts=2).masters("hash")
    for rank in range(4):
        shard = io.load(hashed, rank)
        assert np.array_equal(shard.vertices[: shard.num_masters], np.flatnonzero(masters == rank))
    assert (ask(hosts=2, seed=6) != folder) == (method != "ebv")
    own = {"ebv": {"gamma": 0.3}, "hep": {"tau": 3.0}}.get(method, {})
    assert (ask(hosts=2, **own) != folder) == bool(own)
    have = json.loads((folder / "stats.json").read_text())
    want = statistics(assign_edges(graph, method, 4, 5, hosts=2))
    for name in (
        "inner",
        "outer",
        "max_inner",
        "max_outer",
        "replication",
        "edge_imbalance",
        "vertex_imbalance",
        "replicas",
    ):
        assert have[name] == want[name], name
    assert have["worker_edges"] == want["edges"] and have["edges"] == len(plain_edges(graph)) == 2 * sum(
        want["edges"]
    )
    assert (have["symmetric"], have["multilabel"], have["workers"], have["method"]) == (
        True,
        False,
        4,
        method,
    )


@pytest.mark.parametrize("method", EDGE_METHODS)
def test_a_master_is_on_the_host_with_most_replicas_by_default(method):
    """In the configuration as in the functions behind it."""
    assert CUTS[method]().masters == "host"
    values = yaml.safe_load((ROOT / f"conf/partition/{method}.yaml").read_text())
    assert made(values, "partition", Partitioner) == CUTS[method]()
    graph = random_graph(300, 12)
    edges = assign_edges(graph, method, 6, 0, hosts=3)
    assert np.array_equal(edges.masters(), edges.masters("host"))
    assert not np.array_equal(edges.masters(), edges.masters("hash"))
    assert statistics(edges) == statistics(edges, "host")
    for shard in build_replicas(graph, edges):
        own = shard.vertices[: shard.num_masters]
        assert np.array_equal(own, np.flatnonzero(edges.masters("host") == shard.rank))
