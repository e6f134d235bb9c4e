"""A shard whose indices, types or lengths cannot be is refused before a compiled loop follows them."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.partition import io
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.config import VertexCutPartitioner
from harness.data.partition.faults import fault
from harness.data.partition.shard import Csr
from harness.data.partition.vertexcut import Ebv, assign_edges
from tests.graphs import random_graph

PARTS = 3


@cache
def shards(cut: str):
    """Worker 1's shard of a small graph: an edge-cut of one without symmetry, or a vertex-cut."""
    if cut == "edge":
        graph = random_graph(40, 4, symmetric=False)
        return list(build_shards(graph, assign(graph, "random", PARTS, 0), PARTS))[1]
    graph = random_graph(40, 4)
    partition: VertexCutPartitioner = Ebv()
    return list(build_replicas(graph, assign_edges(graph, partition, PARTS, 0), partition.masters))[1]


# Whose numbers are places in other arrays, or bound them.
PLACES = {
    "edge": [
        *("halo", "halo_rows", "halo_counts", "send_rows", "send_counts", "inner"),
        *("inner_edges.indptr", "inner_edges.indices", "halo_edges.indptr", "halo_edges.indices"),
        *("out_halo", "out_halo_rows", "out_halo_counts", "out_inner_edges.indices", "out_halo_edges.indptr"),
    ],
    "vertex": [
        *("vertices", "mirror_rows", "mirror_counts", "copy_rows", "copy_counts"),
        *("edges.indptr", "edges.indices"),
    ],
}


def changed(shard, name: str, change):
    """A copy of the shard whose array `name` is change(a copy of it)."""
    field, _, inside = name.partition(".")
    value = getattr(shard, field)
    if inside:
        return dataclasses.replace(
            shard, **{field: dataclasses.replace(value, **{inside: change(getattr(value, inside).copy())})}
        )
    return dataclasses.replace(shard, **{field: change(value.copy())})


@pytest.mark.parametrize("cut", PLACES)
@given(data=st.data())
def test_a_place_that_is_none_is_seen(cut, data):
    shard = shards(cut)
    assert fault(shard) is None
    name = data.draw(st.sampled_from(PLACES[cut]))
    bad = data.draw(st.sampled_from([-1, -(2**31), 10**6, 2**31 - 1]))

    def change(array):
        array[data.draw(st.integers(0, len(array) - 1))] = bad
        return array

    damaged = changed(shard, name, change)
    field = name.partition(".")[0]
    assert fault(damaged) is not None
    if field not in ("halo_counts", "send_counts", "out_halo_counts", "mirror_counts", "copy_counts"):
        assert fault(damaged, ranges=False) is None  # which looks at no numbers


@pytest.mark.parametrize(("cut", "name"), [("edge", "halo_edges.indices"), ("vertex", "copy_rows")])
def test_a_shard_is_looked_at_where_it_is_read(cut, name, tmp_path):
    damaged = changed(shards(cut), name, lambda places: places + 10**6)
    io.save(damaged, tmp_path)
    with pytest.raises(InputError, match="worker-1.safetensors is damaged .* delete the folder") as caught:
        io.load(tmp_path, 1)
    assert fault(damaged) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "bad"), [("degrees", -1.0), ("halo_degrees", np.nan), ("out_halo_degrees", -1.0)]
)
def test_a_degree_that_is_none_is_refused(name, bad):
    damaged = changed(shards("edge"), name, lambda degrees: np.append(degrees[:-1].astype(float), bad))
    assert fault(damaged) == f"{name} has a number that is out of range"


@pytest.mark.parametrize("cut", PLACES)
@given(data=st.data())
def test_an_array_of_another_length_or_type_is_refused(cut, data):
    shard = shards(cut)
    fields = [f.name for f in dataclasses.fields(shard)]
    arrays = [name for name in fields if isinstance(getattr(shard, name), np.ndarray)]
    blocks = [name for name in fields if isinstance(getattr(shard, name), Csr)]
    name = data.draw(st.sampled_from([*arrays, *(f"{name}.indptr" for name in blocks)]))
    change = data.draw(
        st.sampled_from([lambda a: np.append(a, a[-1:], 0), lambda a: a[:-1], lambda a: a.astype("U9")])
    )
    assert fault(changed(shard, name, change), ranges=False) is not None
