"""Shards: together they are the graph, and what one sends is what its peers expect, in their order."""

import dataclasses
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.graph import Graph
from harness.data.partition import io
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.shard import Csr, Shard
from harness.data.partition.stats import statistics, two_hops
from tests.graphs import edge_list, graphs, random_graph
from tests.pieces import EDGE_CUTS


@st.composite
def partitions(draw) -> tuple[Graph, np.ndarray, list[Shard]]:
    graph = draw(graphs())
    parts = min(draw(st.integers(1, 5)), graph.num_vertices)
    method = EDGE_CUTS[draw(st.sampled_from(sorted(EDGE_CUTS)))]
    owners = assign(graph, method, parts, draw(st.integers(0, 9)))
    return graph, owners, list(build_shards(graph, owners, parts))


def rows(block: Csr) -> np.ndarray:
    return np.repeat(np.arange(block.num_rows), np.diff(block.indptr))


def pairs(block: Csr, row_ids: np.ndarray, column_ids: np.ndarray) -> list[tuple[int, int]]:
    """(row, column) of every entry, in global ids."""
    assert block.num_columns == len(column_ids) and len(block.indptr) == len(row_ids) + 1
    return list(zip(row_ids[rows(block)].tolist(), column_ids[block.indices].tolist()))


def plain_edges(graph: Graph) -> list[tuple[int, int]]:
    """(target, source) without self-loops."""
    source, target = edge_list(graph)
    return [(v, u) for u, v in zip(source.tolist(), target.tolist()) if u != v]


@given(partitions())
def test_the_union_of_the_shards_is_the_graph(partition):
    graph, owners, shards = partition
    for rank, shard in enumerate(shards):
        assert shard.rank == rank and shard.graph_name == graph.name
        assert shard.num_classes == graph.num_classes and shard.symmetric == graph.symmetric
        assert np.array_equal(shard.inner, np.flatnonzero(owners == rank))
        for name in ("features", "labels", "train", "val", "test"):
            have, want = getattr(shard, name), getattr(graph, name)
            assert have.dtype == want.dtype and np.array_equal(have, want[shard.inner])
        assert np.array_equal(shard.degrees, graph.in_degrees()[shard.inner])
        assert np.array_equal(shard.sizes, np.bincount(owners, minlength=len(shards)))
        assert shard.split_counts.tolist() == [graph.train.sum(), graph.val.sum(), graph.test.sum()]
    inner = [pair for s in shards for pair in pairs(s.inner_edges, s.inner, s.inner)]
    halo = [pair for s in shards for pair in pairs(s.halo_edges, s.inner, s.halo)]
    assert sorted(inner + halo) == sorted(plain_edges(graph))
    assert all(owners[v] == owners[u] for v, u in inner) and all(owners[v] != owners[u] for v, u in halo)


def assert_halo(partition, rank: int, remote: set[int], out: str = "") -> None:
    """The shard's halo, or with out="out_" that of its out-edges, is `remote`, by owner."""
    graph, owners, shards = partition
    halo, counts, degrees, rows = (
        getattr(shards[rank], f"{out}halo{part}") for part in ("", "_counts", "_degrees", "_rows")
    )
    assert halo.tolist() == sorted(remote, key=lambda v: (owners[v], v))
    assert np.array_equal(counts, np.bincount(owners[halo], minlength=len(shards)))
    assert np.array_equal(degrees, graph.in_degrees()[halo])
    for v, row in zip(halo, rows):
        assert shards[owners[v]].inner[row] == v


@given(partitions())
def test_the_halo_is_the_remote_in_neighbours_by_owner_as_their_owners_send_them(partition):
    graph, owners, shards = partition
    for rank, shard in enumerate(shards):
        assert_halo(partition, rank, {u for v, u in plain_edges(graph) if owners[v] == rank != owners[u]})
        sent = np.split(shard.inner[shard.send_rows], np.cumsum(shard.send_counts)[:-1])
        for peer in shards:
            wanted = np.split(peer.halo, np.cumsum(peer.halo_counts)[:-1])
            assert np.array_equal(sent[peer.rank], wanted[rank])


@given(partitions())
def test_out_edges_are_the_transpose_and_left_out_of_a_symmetric_graph(partition):
    graph, owners, shards = partition
    for rank, shard in enumerate(shards):
        if graph.symmetric:
            of_out = [f.name for f in dataclasses.fields(Shard) if f.name.startswith("out_")]
            assert all(getattr(shard, name) is None for name in of_out)
            continue
        out = [(u, v) for v, u in plain_edges(graph) if owners[u] == rank]
        inner = pairs(shard.out_inner_edges, shard.inner, shard.inner)
        halo = pairs(shard.out_halo_edges, shard.inner, shard.out_halo)
        assert sorted(inner + halo) == sorted(out)
        assert_halo(partition, rank, {v for _, v in out if owners[v] != rank}, "out_")


def same(a, b) -> bool:
    if isinstance(a, Csr):
        return same(a.indptr, b.indptr) and same(a.indices, b.indices) and a.num_columns == b.num_columns
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


@given(partitions())
def test_types_are_those_the_contract_names_and_come_back_from_a_file_bit_for_bit(tmp_path, partition):
    for shard in partition[2]:
        for name in ("inner", "degrees", "halo", "halo_rows", "halo_degrees", "send_rows"):
            assert getattr(shard, name).dtype == np.int32, name
        for name in ("sizes", "halo_counts", "send_counts", "split_counts"):
            assert getattr(shard, name).dtype == np.int64, name
        for block in (shard.inner_edges, shard.halo_edges, shard.out_inner_edges, shard.out_halo_edges):
            if block is not None:
                assert block.indptr.dtype == block.indices.dtype == np.int32
        # Columns ascend: inside a row global ids do, and inner columns are numbered by them.
        for row in np.split(shard.inner_edges.indices, shard.inner_edges.indptr[1:-1]):
            assert (np.diff(row) > 0).all()
        io.save(shard, tmp_path)
        loaded = io.load(tmp_path, shard.rank)
        for field in dataclasses.fields(Shard):
            assert same(getattr(shard, field.name), getattr(loaded, field.name)), field.name


@given(graphs())
def test_a_saved_graph_comes_back_bit_for_bit(tmp_path, graph):
    io.save_graph(graph, tmp_path / "graph.safetensors")
    loaded = io.load_graph(tmp_path / "graph.safetensors")
    assert all(same(getattr(graph, f.name), getattr(loaded, f.name)) for f in dataclasses.fields(Graph))


def test_loading_maps_the_file_and_writing_to_it_does_not_reach_the_disk(tmp_path):
    (shard,) = build_shards(random_graph(50, 4), np.zeros(50, np.int32), 1)
    path = io.save(shard, tmp_path)
    loaded = io.load(tmp_path, 0)
    assert str(path) in open("/proc/self/maps").read()
    loaded.features[:] = 0
    assert np.array_equal(io.load(tmp_path, 0).features, shard.features)


def test_files_get_the_rights_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        io.save_graph(random_graph(30, 4), tmp_path / "graph.safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "graph.safetensors").stat().st_mode & 0o777 == 0o640


BYTES = {
    "cut": lambda data: data[: len(data) - 5],
    "cut header": lambda data: data[:40],
    "empty": lambda data: b"",
    "text": lambda data: b"this is no safetensors file\n" * 20,
    "huge header": lambda data: (2**62).to_bytes(8, "little") + data[8:],
    "pickle": lambda data: b"\x80\x04cos\nsystem\n(S'true'\ntR.",
}
METADATA = {
    "no scalars": {},
    "scalars are a list": {"scalars": "[1, 2]"},
    "no cut": {"scalars": "{}"},
    "nothing but the cut": {"scalars": '{"cut": "edge"}'},
}


def damage(path, how: str) -> None:
    data = path.read_bytes()
    if how in BYTES:
        path.write_bytes(BYTES[how](data))
        return
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length]) | {"__metadata__": METADATA[how]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@pytest.mark.parametrize("how", [*BYTES, *METADATA])
def test_a_damaged_shard_is_one_sentence_with_the_mend(tmp_path, how):
    graph = random_graph(30, 4)
    for shard in build_shards(graph, assign(graph, "random", 2, 0), 2):
        io.save(shard, tmp_path)
    damage(tmp_path / "worker-1.safetensors", how)
    with pytest.raises(InputError) as caught:
        io.load(tmp_path, 1)
    message = str(caught.value)
    assert "worker-1.safetensors is damaged (" in message and "\n" not in message
    assert message.endswith(f"delete the folder {tmp_path} and run again to rebuild it")
    io.load(tmp_path, 0)


@pytest.mark.parametrize("how", ["cut", "no scalars", "no cut"])
def test_a_damaged_graph_is_one_sentence_with_the_mend(tmp_path, how):
    path = tmp_path / "graph.safetensors"
    io.save_graph(random_graph(30, 4), path)
    damage(path, how)
    with pytest.raises(InputError, match="graph.safetensors is damaged .* delete the folder"):
        io.load_graph(path)


def test_a_missing_or_swapped_shard_is_refused(tmp_path):
    graph = random_graph(30, 4)
    for shard in build_shards(graph, assign(graph, "random", 2, 0), 2):
        io.save(shard, tmp_path)
    with pytest.raises(InputError, match="worker-2.safetensors is missing; delete the folder"):
        io.load(tmp_path, 2)
    (tmp_path / "worker-0.safetensors").replace(tmp_path / "worker-1.safetensors")
    with pytest.raises(InputError, match="it is worker 0's"):
        io.load(tmp_path, 1)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be written .* give cache=FOLDER"):
        io.save_graph(random_graph(30, 4), tmp_path / "absent" / "graph.safetensors")


@given(partitions())
def test_halos_of_two_hops_equal_a_count_by_hand(partition):
    graph, owners, shards = partition
    into = {v: {u for w, u in plain_edges(graph) if w == v} for v in range(graph.num_vertices)}
    halos = []
    for part in range(len(shards)):
        inner = set(np.flatnonzero(owners == part).tolist())
        first = set().union(*(into[v] for v in inner)) - inner
        halos.append((first | set().union(*(into[v] for v in first))) - inner)
    assert two_hops(graph, owners, len(shards)) == {
        "halo_two_hops": [len(halo) for halo in halos],
        "shared_halo_two_hops": sum(sum(v in halo for halo in halos) > 1 for v in into),
    }


@given(partitions())
def test_statistics_equal_a_count_by_hand(partition):
    graph, owners, shards = partition
    have = json.loads(json.dumps(statistics(graph, shards)))
    edges, parts = plain_edges(graph), range(len(shards))
    halos = [{u for v, u in edges if owners[v] == p != owners[u]} for p in parts]
    cut = sum(owners[v] != owners[u] for v, u in edges)
    per_worker = [sum(owners[v] == p for v, _ in edges) for p in parts]
    assert (have["vertices"], have["edges"], have["workers"]) == (graph.num_vertices, len(edges), len(shards))
    assert have["inner"] == [int((owners == p).sum()) for p in parts]
    assert have["halo"] == [len(halo) for halo in halos]
    # A row goes to a peer once, however many edges it serves there.
    assert have["sent_rows"] == [sum(owners[u] == p for halo in halos for u in halo) for p in parts]
    assert have["edge_cut"] == cut and have["edge_cut_share"] == pytest.approx(cut / max(len(edges), 1))
    ratio = [sum(u in halo for halo in halos) for u in set().union(*halos)]  # R(v), eq. 2
    assert have["overlap"] == pytest.approx(np.mean(ratio) if ratio else 0)
    assert have["shared_halo"] == sum(r > 1 for r in ratio)
    assert have["replication"] == pytest.approx(1 + sum(len(h) for h in halos) / graph.num_vertices)
    degrees = np.bincount([v for v, _ in edges], minlength=graph.num_vertices) + 1.0
    weight = {(v, u): (degrees[v] * degrees[u]) ** -0.5 for v, u in edges}
    remote = sum(w for (v, u), w in weight.items() if owners[v] != owners[u])
    assert have["remote_weight"] == pytest.approx(remote / (sum(weight.values()) + (1 / degrees).sum()))
    assert have["vertex_balance"] == pytest.approx(max(have["inner"]) / (graph.num_vertices / len(shards)))
    assert have["edge_balance"] == pytest.approx(
        max(per_worker) / max(len(edges) / len(shards), 1 / len(shards))
    )
