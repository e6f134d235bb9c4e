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

from harness.check import InputError
from harness.check.target import made
from harness.graph.graph import Graph
from harness.partition import io
from harness.partition.build_replicas import build_replicas
from harness.partition.cache import Cache, shards_for
from harness.partition.config import EDGE_METHODS, MASTER_RULES, TARGETS, Partitioner
from harness.partition.shard import ReplicaShard
from harness.partition.vertexcut import CUTS, Ebv, EdgeAssignment, assign_edges, statistics
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


def test_a_damaged_shard_is_refused(tmp_path):
    graph = random_graph(30, 4)
    for shard in build_replicas(graph, assign_edges(graph, "ebv", 2, 0)):
        io.save(shard, tmp_path)
    path = tmp_path / "worker-1.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    for word, other, reason in [
        (b"mirror_rows", b"mirror_rowz", "it holds no mirror_rows"),
        (b"vertex", b"vertez", "of no known cut"),
    ]:
        path.write_bytes(data[:8] + data[8 : 8 + length].replace(word, other) + data[8 + length :])
        with pytest.raises(
            InputError, match=f"worker-1.safetensors is damaged .*{reason}.*; delete the folder"
        ):
            io.load(tmp_path, 1)


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


def test_shards_of_another_rule_of_masters_are_other_shards(tmp_path):
    """So that shards which were cached under one default are not taken for those of another."""
    graph = random_graph(60, 6)
    edges = assign_edges(graph, "ebv", 4, 5, hosts=2)
    folders = {}
    for rule in MASTER_RULES:
        config = Ebv(hosts=2, masters=rule)
        folders[rule] = shards_for(Cache(tmp_path), {"name": "g"}, lambda: graph, config, 4, seed=5)
        have = json.loads((folders[rule] / "stats.json").read_text())
        assert have["outer"] == statistics(edges, rule)["outer"]
        for rank in range(4):
            shard = io.load(folders[rule], rank)
            own = shard.vertices[: shard.num_masters]
            assert np.array_equal(own, np.flatnonzero(edges.masters(rule) == rank))
    assert folders["host"] != folders["hash"]


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


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ({"method": "ebv", "gamma": 1.5}, "partition.gamma=1.5 is out of range: give 0 to 1"),
        ({"method": "ebv", "hosts": 0}, "partition.hosts=0 is too small: give 1 or more"),
        ({"method": "hep", "tau": 0}, "partition.tau=0.0 is too small: give more than 0"),
        (
            {"method": "dne", "masters": "hosts"},
            'partition.masters="hosts" is not known; did you mean "host"?',
        ),
    ],
)
def test_refusals(keys, sentence):
    with pytest.raises(InputError) as caught:
        method = keys.pop("method")
        made({"_target_": TARGETS[method], **keys}, "partition", Partitioner)
    assert str(caught.value) == sentence
