"""The bench's mini-batches beside DGL's loop, on a tiny graph; no time is judged."""

from __future__ import annotations

import pytest

from harness.base.dgl import load_dgl
from harness.dev.bench import batches
from tests import systems


def test_the_faster_of_dgls_loaders_is_the_peer(monkeypatch):
    if load_dgl() is None:
        pytest.skip("dgl cannot be loaded")
    monkeypatch.setattr(batches, "BATCH", 40)
    graph = systems.planted_graph(3, vertices=400)
    held, *others = batches.batch_lines(graph, hidden=8, rounds=3)
    assert held.target == batches.ABOUT_AS_FAST and 0 < held.peer <= min(line.ours for line in others)
    assert len(held.samples) == len(held.peer_samples) == 3 and "loading process" in held.note


def test_without_dgl_it_says_so_and_holds_to_nothing(monkeypatch):
    monkeypatch.setattr(batches, "load_dgl", lambda: None)
    (line,) = batches.batch_lines(systems.planted_graph(3, vertices=400), hidden=4, rounds=1)
    assert "not measured" in line.note and line.met is None


def test_a_loss_that_does_not_fall_is_told():
    batches.check_learning({"a": [2.0, 3.0, 1.0]})
    with pytest.raises(AssertionError, match="b: a loss of 1.0"):
        batches.check_learning({"a": [2.0, 1.0], "b": [1.0, 1.5]})
