"""The bench beside PyG and DGL on tiny graphs: its peers compute what we compute; no time is judged."""

import math
import sys

import pytest
import torch

from harness.base.dgl import load_dgl
from harness.core.architectures import Gcn
from harness.core.optimisers import Adam
from harness.dev.bench import batches, epoch, needed
from tests import systems
from tests.graphs import random_graph
from tests.oracles import dense

MODEL = Gcn(layers=2, hidden=16, dropout=0.0)


@pytest.fixture(autouse=True)
def process_as_it_was(monkeypatch):
    """What the bench sets for its own process does not stay for later tests."""
    for module in (batches, epoch, needed):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def graph():
    return random_graph(300, 12, num_features=20, num_classes=4, seed=1)


@pytest.fixture(scope="module")
def shard(graph):
    return epoch.whole(graph)


@pytest.fixture
def dgl():
    if load_dgl() is None:
        pytest.skip("dgl cannot be loaded")


def test_everybody_computes_the_same_logits_and_losses(shard):
    ours = epoch.both_ways(shard, MODEL, Adam())
    first = next(iter(ours.values()))
    everybody = {**ours, **epoch.cpu_peers(shard, first.weights(), Adam())[0]}
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


def test_an_epoch_is_held_to_both_peers(graph):
    pytest.importorskip("torch_geometric")
    found = [line for line in epoch.epoch_lines(graph, MODEL, rounds=2) if not math.isnan(line.ours)]
    assert all(line.ours > 0 and line.peer > 0 for line in found)
    held = {line.name.removeprefix("one worker features="): line.target for line in found}
    beside_dgl = {"refetch / DGL": 0.75, "once / DGL": 0.40} if load_dgl() is not None else {}
    assert held == {"refetch / PyG": 1.0, "once / PyG": 1.0, **beside_dgl}


def test_an_epoch_on_needed_rows_stands_beside_dgls_and_pygs():
    graph = random_graph(300, 3, num_features=20, num_classes=4, seed=1)
    graph.train[20:] = False
    rows = dense.adjacency(graph)[graph.train].any(0) | graph.train  # R_1
    pyg, dgl = needed.beside_peers(graph, "random", 2, 8, 0.2)
    assert pyg.note == f"|R_1| / V = {rows.mean():.3f}" and 0 < rows.mean() < 0.9
    assert pyg.ours > 0 and pyg.peer > 0 and pyg.target is None and pyg.name.endswith("/ PyG")
    if load_dgl() is not None:
        assert dgl.ours > 0 and dgl.peer > 0 and dgl.target == 0.2


def test_blocks_are_timed_beside_dgls_sampler(graph, dgl):
    held, *others = batches.block_lines(graph, rounds=2)
    assert held.target == batches.NO_SLOWER and all(line.target is None for line in others)
    assert all(line.ours > 0 and line.peer > 0 and len(line.peer_samples) == 2 for line in (held, *others))


def test_the_faster_of_dgls_loaders_is_the_peer_of_mini_batches(monkeypatch, dgl):
    monkeypatch.setattr(batches, "BATCH", 40)
    held, *others = batches.batch_lines(systems.planted_graph(3, vertices=400), hidden=8, rounds=3)
    assert held.target == batches.ABOUT_AS_FAST and 0 < held.peer <= min(line.ours for line in others)
    assert len(held.samples) == len(held.peer_samples) == 3 and "loading process" in held.note


def test_a_loss_that_does_not_fall_is_told():
    batches.check_learning({"a": [2.0, 3.0, 1.0]})
    with pytest.raises(AssertionError, match="b: a loss of 1.0"):
        batches.check_learning({"a": [2.0, 1.0], "b": [1.0, 1.5]})


EPOCH_LINES = (
    lambda graph: epoch.epoch_lines(graph, MODEL, rounds=1),
    lambda graph: needed.beside_peers(graph, "random", 1, 8, 0.2),
)


@pytest.mark.parametrize("module, measure", [
    *((epoch, lines) for lines in EPOCH_LINES),
    (batches, lambda graph: batches.block_lines(graph, rounds=1)),
    (batches, lambda graph: batches.batch_lines(graph, hidden=4, rounds=1)),
], ids=["epoch", "needed rows", "blocks", "batches"])  # fmt: skip
def test_a_peer_that_is_not_installed_is_no_target_missed(monkeypatch, module, measure):
    monkeypatch.setattr(module, "load_dgl", lambda: None)
    graph = random_graph(60, 6, num_features=5, num_classes=3, seed=1)
    (absent,) = (line for line in measure(graph) if math.isnan(line.ours))
    assert absent.met is None and "not measured" in absent.note


@pytest.mark.parametrize("lines", EPOCH_LINES, ids=["epoch", "needed rows"])
def test_without_pyg_the_bench_goes_on_and_names_the_extra(monkeypatch, lines):
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    graph = random_graph(60, 6, num_features=5, num_classes=3, seed=1)
    (absent,) = (line for line in lines(graph) if math.isnan(line.ours) and "PyG" in line.name)
    assert absent.met is None and 'pip install "halobench[peers]": not measured' in absent.note
