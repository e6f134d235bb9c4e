"""The bench's epochs beside PyG's and DGL's on tiny graphs: its peers compute what we compute; no time is
judged.
"""

import math

import numpy as np
import pytest
import torch

from harness.base.dgl import load_dgl
from harness.core.architectures import Gcn
from harness.core.kernels.tiling import Tiling, Timed
from harness.core.optimisers import Adam
from harness.data.partition.shard import Csr
from harness.dev.bench import epoch, products
from tests.graphs import random_graph

MODEL = Gcn(layers=2, hidden=16, dropout=0.0)


@pytest.fixture(scope="module")
def shard():
    return epoch.whole(random_graph(300, 12, num_features=20, num_classes=4, seed=1))


@pytest.fixture(scope="module")
def everybody(shard):
    return epoch.contenders(shard, MODEL, Adam())


def test_products_have_the_tilings_of_their_shapes_and_of_their_adjoints(monkeypatch):
    asked = []
    timed = lambda columns, degree: asked.append((columns, degree)) or [Timed(Tiling(2, 8), 1.0)]
    monkeypatch.setattr(products, "_timed", timed)
    block = Csr(np.arange(3001, dtype=np.int32) * 400, np.zeros(1_200_000, np.int32), 8000)
    found = products.tilings_of(block)
    assert sorted(asked) == [(2896, 512), (8192, 512)]
    assert found.choose(3000, 8000, 1_200_000, 2) == Tiling(2, 8)


def test_all_peers_take_part(everybody):
    pytest.importorskip("torch_geometric")
    expected = {"features=refetch", "features=once", "PyG"}
    assert set(everybody) == expected | ({"DGL"} if load_dgl() is not None else set())


def test_everybody_computes_the_same_logits_and_losses(everybody):
    first = everybody["features=refetch"]
    for _ in range(3):
        want = first.logits()
        for name, other in everybody.items():
            torch.testing.assert_close(other.logits().detach(), want, rtol=1e-4, atol=1e-5, msg=name)
        for other in everybody.values():
            other()
    epoch.check_losses(first, everybody, epochs=3)


def test_a_peer_that_computes_something_else_is_refused(shard):
    ours = epoch.Ours(shard, MODEL, Adam(), "once")
    other = epoch.Ours(shard, MODEL, Adam(lr=0.5), "once")
    for _ in range(2):
        other()
    with pytest.raises(AssertionError, match="impostor"):
        epoch.check_losses(ours, {"impostor": other}, epochs=2)


def test_epoch_lines_are_finite_and_positive():
    graph = random_graph(300, 12, num_features=20, num_classes=4, seed=1)
    found = epoch.epoch_lines(graph, MODEL, rounds=2)
    figures = [line for line in found if not math.isnan(line.ours)]
    assert all(line.ours > 0 and (line.peer is None or line.peer > 0) for line in figures)
    held = {line.name: line.target for line in figures if line.target is not None}
    if load_dgl() is not None:
        assert {held[f"one worker features={how} / DGL"] for how in ("refetch", "once")} == {0.75, 0.40}
    assert any("PyG" in name and target == 1.0 for name, target in held.items())


def test_a_peer_that_is_not_installed_is_no_target_missed(monkeypatch):
    monkeypatch.setattr(epoch, "load_dgl", lambda: None)
    graph = random_graph(60, 6, num_features=5, num_classes=3, seed=1)
    (absent,) = (line for line in epoch.epoch_lines(graph, MODEL, rounds=1) if line.name == "DGL")
    assert absent.met is None and math.isnan(absent.ours) and "not measured" in absent.note
