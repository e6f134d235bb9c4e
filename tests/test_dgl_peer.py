"""Mini-batches beside DGL's own: as many inputs and edges in a batch, and as good a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from harness.bench.blocks import dgl_sampler, our_sampler
from harness.core.dgl_kernel import load_dgl
from tests import systems
from tests.systems import Settings

pytestmark = pytest.mark.skipif(load_dgl() is None, reason="dgl cannot be loaded")
FANOUTS, BATCH, WORKERS, EPOCHS, HIDDEN = [5, 5], 8, 4, 15, 16
ADAM = {"lr": 0.015, "weight_decay": 5e-4}


def test_a_batch_has_as_many_edges_and_inputs_as_dgls():
    dgl = load_dgl()
    dgl.seed(1)
    graph = systems.planted_graph(3, vertices=3000)
    found = np.zeros((2, 2))  # ours and DGL's edges and inputs, over batches of other seeds
    for seeds in np.flatnonzero(graph.train)[:60].astype(np.int32).reshape(20, 3):
        ours, edges = our_sampler(graph, seeds)
        theirs, their_edges = dgl_sampler(dgl, graph, seeds, threads=1)
        first = ours()[-1]
        found[0] += edges, first.num_inner + first.num_halo
        found[1] += their_edges, theirs()[0].num_src_nodes()
    np.testing.assert_allclose(found[0], found[1], rtol=0.03)
    assert found[0, 1] / 20 < 0.6 * 3000, "where nearly all vertices are inputs this tests nothing"


def dgls_accuracy(graph, seed: int) -> float:
    """On the test vertices after EPOCHS of DGL's sampler and GraphSAGE in one process, WORKERS x BATCH seeds
    a step."""
    dgl = load_dgl()
    from dgl.nn.pytorch import SAGEConv

    torch.manual_seed(seed)
    dgl.seed(seed)
    dgl.utils.set_num_threads(1)  # on several its draws are others each time
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    ends = torch.from_numpy(graph.indices.astype(np.int64)), torch.from_numpy(rows)
    there = dgl.graph(ends, num_nodes=graph.num_vertices)
    x, y = torch.from_numpy(graph.features), torch.from_numpy(graph.labels).long()
    layers = SAGEConv(x.shape[1], HIDDEN, "mean"), SAGEConv(HIDDEN, graph.num_classes, "mean")
    adam = torch.optim.Adam([p for layer in layers for p in layer.parameters()], **ADAM)
    sampler = dgl.dataloading.NeighborSampler(FANOUTS)
    ids = torch.from_numpy(np.flatnonzero(graph.train))
    for _ in range(EPOCHS):
        for part in ids[torch.randperm(len(ids))].split(WORKERS * BATCH):
            inputs, _, made = sampler.sample_blocks(there, part)
            logits = layers[1](made[1], layers[0](made[0], x[inputs]).relu())
            loss = F.cross_entropy(logits, y[part])
            adam.zero_grad()
            loss.backward()
            adam.step()
    with torch.no_grad():
        found = layers[1](there, layers[0](there, x).relu()).argmax(1)
    return float((found == y)[torch.from_numpy(graph.test)].float().mean())


@pytest.mark.nightly(60)
def test_a_model_is_as_good_as_dgls(pool):
    """Over six graphs: the mean difference is within its 95 % interval, or below two points."""
    model = {"name": "sage", "layers": 2, "hidden": HIDDEN, "dropout": 0.0}
    block = systems.block("distdgl", fanouts=FANOUTS, batch=BATCH)
    differences = []
    for seed in range(6):
        graph = systems.planted_graph(seed)
        how = Settings(model=model, optimiser=ADAM, dtype="float32", epochs=EPOCHS, seed=seed)
        ours = systems.run(pool, graph, block, WORKERS, settings=how).scores[-1][2]
        differences.append(ours - dgls_accuracy(graph, seed))
    half = stats.t.ppf(0.975, 5) * np.std(differences, ddof=1) / 6**0.5
    assert abs(np.mean(differences)) <= max(half, 0.02), (np.mean(differences), half)
