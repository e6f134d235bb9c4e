"""What stands between layers: the same losses and gradients as a dense model of torch's own modules, on any
number of workers.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from harness.core.models import Model
from harness.data.graph import Graph
from harness.data.partition.vertexcut import assign_edges
from harness.dev.conformance.subject import facts_of
from harness.run import config
from systems.cofree import Cofree
from systems.digest_a import DigestA
from systems.llcg import Llcg
from systems.local import Local
from tests import training
from tests.graphs import random_graph
from tests.oracles.bytes import all_reduce
from tests.oracles.dense import adjacency
from tests.systems import shards_of

FUNCTIONS = {
    "relu": nn.ReLU(),
    "elu": nn.ELU(),
    "leaky_relu": nn.LeakyReLU(),
    "gelu": nn.GELU(),
    "tanh": nn.Tanh(),
}
EXACT_REPLICAS = {"_target_": "systems.cdfgnn.Cdfgnn", "cache": False, "quantise": False}


class Dense(nn.Module):
    """A GCN or GraphSAGE over dense matrices, with torch's own norms and activations."""

    def __init__(self, graph: Graph, model: dict, weights: dict[str, np.ndarray]):
        super().__init__()
        b = torch.from_numpy(np.asarray(adjacency(graph), dtype=np.float64))
        degree = b.sum(1)
        if model["name"] == "sage":
            self.a = b / degree.clamp(min=1)[:, None]
        else:
            scale = (degree + 1).rsqrt()
            self.a = scale[:, None] * (b + torch.eye(len(b), dtype=b.dtype)) * scale
        self.model, self.depth = model, model["layers"]
        self.w = nn.ParameterDict(
            {name.replace(".", "_"): nn.Parameter(torch.from_numpy(v)) for name, v in weights.items()}
        )
        norm = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}.get(model["norm"])
        self.norms = (
            nn.ModuleList(norm(model["hidden"], dtype=b.dtype) for _ in range(self.depth - 1)) if norm else []
        )
        self.double()

    def forward(self, x):
        h = x
        for l in range(self.depth):
            taken = h
            h = self.a @ taken @ self.w[f"layers_{l}_weight"] + self.w[f"layers_{l}_bias"]
            if self.model["name"] == "sage":
                h = h + taken @ self.w[f"layers_{l}_root"]
            if l + 1 == self.depth:
                return h
            h = FUNCTIONS[self.model["activation"]](self.norms[l](h) if self.norms else h)
            if self.model["residual"]:
                h = h + (taken @ self.w["layers_0_skip"] if l == 0 else taken)
            h = F.normalize(h, dim=1) if self.model["norm"] == "l2" else h
        return h

    def gradients(self) -> dict[str, torch.Tensor]:
        found = {name.replace("_", ".", 2): p.grad for name, p in self.w.items() if p.grad is not None}
        for l, norm in enumerate(self.norms):
            found |= {f"layers.{l}.norm.{name}": p.grad for name, p in norm.named_parameters()}
        return found


def first_weights(graph: Graph, model: dict) -> dict[str, np.ndarray]:
    """Those that every run with this model begins with, in float64; not those of norms."""
    torch.set_default_dtype(torch.float64)
    try:
        widths = [graph.num_features, *[model["hidden"]] * (model["layers"] - 1), graph.num_classes]
        made = Model(config.make("model", model), widths, 3)
        return {
            name: p.detach().numpy().copy() for name, p in made.named_parameters() if ".norm." not in name
        }
    finally:
        torch.set_default_dtype(torch.float32)


def dense_first_step(graph: Graph, model: dict) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss before the first step, and its gradients."""
    dense = Dense(graph, model, first_weights(graph, model))
    logits = dense(torch.from_numpy(graph.features).double())
    mask, labels = torch.from_numpy(graph.train), torch.from_numpy(graph.labels).long()
    loss = F.cross_entropy(logits[mask], labels[mask])
    loss.backward()
    return float(loss.detach()), dense.gradients()


def assert_first_step(found: dict, graph: Graph, model: dict) -> None:
    """A worker's first loss, and its gradients, by then summed over workers, are the dense model's."""
    loss, gradients = dense_first_step(graph, model)
    assert found["losses"][0] == pytest.approx(loss, abs=1e-9)
    assert set(found["gradients"]) == set(gradients)
    for key, want in gradients.items():
        np.testing.assert_allclose(found["gradients"][key], want.numpy(), atol=1e-9, err_msg=key)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 30),
    name=st.sampled_from(["gcn", "sage"]),
    norm=st.sampled_from(["none", "layer", "batch", "batch", "l2"]),
    activation=st.sampled_from(list(FUNCTIONS)),
    residual=st.booleans(),
    layers=st.integers(1, 4),
    parts=st.integers(1, 4),
    features=st.sampled_from(["once", "refetch"]),
)
def test_a_step_is_the_dense_models_on_any_number_of_workers(
    pool, seed, name, norm, activation, residual, layers, parts, features
):
    graph = random_graph(30, 5, seed=seed)
    model = {"name": name, "norm": norm, "activation": activation, "residual": residual, "layers": layers,
             "hidden": 5, "dropout": 0.0}  # fmt: skip
    system = {**training.VANILLA, "features": features}
    found = training.run(pool, graph, parts, model=model, system=system, epochs=1)
    assert_first_step(found[0], graph, model)


def test_over_a_vertex_cut_each_vertex_counts_once(pool):
    """A vertex has rows on several workers, and each row brings a part of its gradient."""
    graph = random_graph(30, 5, seed=8)
    model = {"name": "gcn", "norm": "batch", "activation": "gelu", "residual": True, "layers": 3,
             "hidden": 5, "dropout": 0.0}  # fmt: skip
    shards = shards_of(graph, assign_edges(graph, "ebv", 3, 3), 3)
    how = {"model": model, "system": EXACT_REPLICAS, "epochs": 1}
    found = pool.run(training.train, 3, how, per_worker=shards)
    assert_first_step(found[0], graph, model)


def test_batch_norm_over_workers_agrees_with_one_counts_its_statistics_and_goes_on_bit_for_bit(pool):
    graph, parts = random_graph(30, 5, seed=4), 4
    model = {**training.GCN, "norm": "batch", "layers": 3, "hidden": 6, "residual": True, "dropout": 0.3}
    (alone,), whole = (training.run(pool, graph, size, model=model, epochs=4) for size in (1, parts))
    np.testing.assert_allclose(whole[0]["losses"], alone["losses"], atol=1e-9)
    assert [s.accuracy for s in whole[0]["scores"]] == [s.accuracy for s in alone["scores"]]
    resumed = training.run(pool, graph, parts, model=model, epochs=4, stop_at=3)
    assert training.same_bits(whole, resumed)
    for epoch in range(4):
        sent: dict[tuple, int] = {}
        for worker in whole:
            for (layer, direction, purpose, _), (rows, size) in worker["sent"][epoch].items():
                if purpose == "batch_norm":
                    sent[layer, direction] = sent.get((layer, direction), 0) + size
        # float64 here: twice the bytes of float32
        forward, backward = 2 * all_reduce(2 * 6 + 1, parts), 2 * all_reduce(2 * 6, parts)
        assert sent == {(l, "forward"): forward for l in (0, 1)} | {(l, "backward"): backward for l in (0, 1)}


def test_a_mean_far_from_zero_leaves_the_variance_its_digits(pool):
    """In float32, where the difference of two sums of squares would be lost."""
    for size in (1, 3):
        for mean, variance in pool.run(training.standardised, size):
            assert abs(mean) < 1e-2 and variance == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    "system", [DigestA(), Llcg(), Local(), Cofree()], ids=["digest_a", "llcg", "local", "cofree"]
)
def test_workers_that_do_not_meet_refuse_batch_norm(system):
    assert "give model.norm=layer" in system.supports(replace(facts_of("gcn"), norm="batch"))
    assert system.supports(replace(facts_of("gcn"), norm="layer")) is None
