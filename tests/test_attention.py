"""Graph attention: the compiled edge softmax, its gradients, and whole training beside torch_geometric's
GATConv.
"""

from __future__ import annotations

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
from tests.systems import Settings

GAT = {"name": "gat", "layers": 3, "hidden": 6, "heads": 2, "out_heads": 2, "dropout": 0.0}
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


def pyg_losses(graph, weights, epochs: int, lr: float, weight_decay: float) -> list[float]:
    """Full-batch training of torch_geometric's GATConv begun with our weights."""
    conv = pytest.importorskip("torch_geometric.nn").GATConv
    targets = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    kept = targets != graph.indices
    edges = torch.from_numpy(np.stack([graph.indices[kept], targets[kept]]).astype(np.int64))
    layers = []
    for l in range(GAT["layers"]):
        own = {
            name.split(".")[2]: torch.from_numpy(w)
            for name, w in weights.items()
            if name.startswith(f"layers.{l}.")
        }
        heads, f = own["att_source"].shape
        layer = conv(own["weight"].shape[0], f, heads, concat=l + 1 < GAT["layers"])
        with torch.no_grad():
            layer.lin.weight.copy_(own["weight"].t())
            layer.att_src.copy_(own["att_source"][None])
            layer.att_dst.copy_(own["att_target"][None])
            layer.bias.copy_(own["bias"])
        layers.append(layer)
    optimiser = torch.optim.Adam(
        [p for layer in layers for p in layer.parameters()], lr=lr, weight_decay=weight_decay
    )
    x, labels, losses = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.labels).long(), []
    for _ in range(epochs):
        h = x
        for layer in layers[:-1]:
            h = torch.nn.functional.elu(layer(h, edges))
        score = layers[-1](h, edges)[graph.train]
        loss = torch.nn.functional.cross_entropy(score, labels[graph.train])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
def test_training_equals_pyg(pool, directed):
    graph, settings = random_graph(5, vertices=25, directed=directed), Settings(model=GAT)
    outcome = systems.run(pool, graph, systems.block("vanilla", features="refetch"), 3, "random", settings)
    torch.set_default_dtype(torch.float64)
    try:
        want = pyg_losses(graph, outcome.weights[0], settings.epochs, **settings.optimiser)
    finally:
        torch.set_default_dtype(torch.float32)
    np.testing.assert_allclose(outcome.losses, want, rtol=1e-6)


def test_dropout_is_the_same_for_any_number_of_workers(pool):
    graph, settings = random_graph(6, vertices=25), Settings(model={**GAT, "dropout": 0.4})
    one = systems.run(pool, graph, systems.block("vanilla"), 1, "block", settings)
    many = systems.run(pool, graph, systems.block("vanilla"), 4, "random", settings)
    np.testing.assert_allclose(many.losses, one.losses, rtol=1e-9)


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
