"""Graph attention: the compiled edge softmax, its gradients, torch_geometric's layer beside it, and who has
no sense for it.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.architectures import Gat
from harness.core.attention import AttentionEdges, attend, attend_with_torch
from harness.data.partition.build import build_shards
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph

CPU = torch.device("cpu")


@given(
    seed=st.integers(0, 10_000), parts=st.integers(1, 3), heads=st.integers(1, 3), threads=st.integers(1, 2)
)
def test_compiled_attention_equals_torch_in_both_passes(seed, parts, heads, threads):
    graph = random_graph(seed, vertices=20)
    shard = next(build_shards(graph, (np.arange(20) % parts).astype(np.int32), parts))
    edges = AttentionEdges(shard.inner_edges, shard.halo_edges if parts > 1 else None, CPU)
    assert edges.num_edges == shard.inner_edges.num_entries + shard.halo_edges.num_entries + shard.num_inner
    rng = torch.Generator().manual_seed(seed)
    shapes = [(edges.num_columns, heads, 3), (edges.num_columns, heads), (edges.num_rows, heads)]
    ours = [torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True) for shape in shapes]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        z = attend(edges, *ours)
        want = attend_with_torch(
            torch.from_numpy(edges.indices).long(), torch.from_numpy(edges.target).long(), *theirs
        )
        torch.testing.assert_close(z, want)
        grad = torch.randn(z.shape, generator=rng, dtype=torch.float64)
        z.backward(grad)
        want.backward(grad)
    finally:
        torch.set_num_threads(before)
    for mine, other in zip(ours, theirs):
        torch.testing.assert_close(mine.grad, other.grad)


def test_a_layer_is_pygs():
    graph = random_graph(5, vertices=25, directed=True)
    (shard,) = build_shards(graph, np.zeros(25, np.int32), 1)
    layer = pytest.importorskip("torch_geometric.nn").GATConv(graph.num_features, 3, heads=2).double()
    x, targets = torch.from_numpy(graph.features).double(), np.repeat(np.arange(25), np.diff(graph.indptr))
    y = layer.lin(x).view(25, 2, 3)
    source, target = (y * layer.att_src).sum(2), (y * layer.att_dst).sum(2)
    z = attend(AttentionEdges(shard.inner_edges, None, CPU), y, source, target)
    want = layer(x, torch.from_numpy(np.stack([graph.indices, targets])).long())
    torch.testing.assert_close(z.flatten(1) + layer.bias, want)


@pytest.mark.parametrize(
    "name, knobs, mend",
    [
        ("sancus", {}, "give model=gcn"),
        ("cdfgnn", {}, "give model=gcn or model=sage"),
        ("bns", {"rate": 0.5}, "system.rate=1"),
        ("adaqp", {"bits": 4, "assignment": "adaptive"}, "assignment=uniform"),
        ("lean", {"extra_work": 1}, "give system.extra_work=0"),
        *(("bns", {"rate": 1.0}, None), ("adaqp", {"bits": 4}, None), ("lean", {}, None)),
    ],
)
def test_what_attention_has_no_sense_for_is_refused_with_it(name, knobs, mend):
    reason = make_system(systems.block(name, **knobs)).supports(facts_of("gat"))
    assert reason is None if mend is None else mend in reason


def test_heads_divide_the_hidden_width():
    with pytest.raises(InputError, match="hidden=10 does not divide into heads=8"):
        Gat(hidden=10)
