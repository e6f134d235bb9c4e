"""Shards of a vertex-cut: together they are the graph, every vertex has one master, and both ends of a
message agree on its rows.
"""

import dataclasses
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.data.graph import Graph
from harness.data.partition import io
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.cache import Cache, shards_for
from harness.data.partition.config import MASTER_RULES
from harness.data.partition.shard import ReplicaShard
from harness.data.partition.vertexcut import Ebv, EdgeAssignment, assign_edges, statistics
from tests.graphs import random_graph
from tests.test_partition_shards import plain_edges, same
from tests.test_partition_vertexcut import assignments


@st.composite
def partitions(draw) -> tuple[Graph, EdgeAssignment, str, list[ReplicaShard]]:
    graph, edges = draw(assignments())
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
        assert np.array_equal(shard.sizes, np.bincount(masters, minlength=len(shards)))
        for v, row in zip(mirrors, shard.mirror_rows):
            assert shards[masters[v]].vertices[row] == v
        # What a mirror sends is what its master expects.
        expected = np.split(shard.vertices[shard.copy_rows], np.cumsum(shard.copy_counts)[:-1])
        for peer in shards:
            sent = np.split(peer.vertices[peer.num_masters :], np.cumsum(peer.mirror_counts)[:-1])
            assert np.array_equal(sent[shard.rank], expected[peer.rank])
        assert shard.mirror_counts[shard.rank] == shard.copy_counts[shard.rank] == 0


@given(partitions())
def test_replicas_carry_their_vertex_and_come_back_from_their_file_bit_for_bit(tmp_path, partition):
    graph, _, _, shards = partition
    for shard in shards:
        own = shard.vertices[: shard.num_masters]
        for name in ("labels", "train", "val", "test"):
            assert same(getattr(shard, name), getattr(graph, name)[own]), name
        assert same(shard.features, graph.features[shard.vertices])
        assert np.array_equal(shard.degrees, graph.in_degrees()[shard.vertices]), "of the whole graph"
        assert shard.split_counts.tolist() == [graph.train.sum(), graph.val.sum(), graph.test.sum()]
        for name in ("vertices", "degrees", "mirror_rows", "copy_rows"):
            assert getattr(shard, name).dtype == np.int32, name
        assert shard.edges.indptr.dtype == shard.edges.indices.dtype == np.int32
        io.save(shard, tmp_path)
        loaded = io.load(tmp_path, shard.rank)
        assert type(loaded) is ReplicaShard
        for field in dataclasses.fields(ReplicaShard):
            assert same(getattr(shard, field.name), getattr(loaded, field.name)), field.name


def test_the_cache_holds_shards_and_table_3(tmp_path):
    graph = random_graph(60, 6)
    ask = lambda **keys: shards_for(Cache(tmp_path), {"name": "g"}, lambda: graph, Ebv(**keys), 4, seed=5)
    folder, hashed = ask(hosts=2), ask(hosts=2, masters="hash")
    assert hashed != folder, "shards of another rule of masters are other shards"
    edges = assign_edges(graph, "ebv", 4, 5, hosts=2)
    for rank in range(4):
        shard = io.load(hashed, rank)
        assert np.array_equal(
            shard.vertices[: shard.num_masters], np.flatnonzero(edges.masters("hash") == rank)
        )
    have, want = json.loads((folder / "stats.json").read_text()), statistics(edges)
    per_worker = want.pop("edges")
    assert {name: have[name] for name in want} == want
    assert have["worker_edges"] == per_worker and have["edges"] == 2 * sum(per_worker)
    described = (have["symmetric"], have["multilabel"], have["workers"], have["method"])
    assert described == (True, False, 4, "ebv")
