"""Which rows a bounded cache holds, against a naive simulator."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.comm.recorder import Recorder
from systems.parts import tier_rows
from systems.parts.rowcache import NONE, Queue, Selection


class Naive:
    def __init__(self, capacity: int, policy: str):
        self.capacity, self.policy, self.held = capacity, policy, OrderedDict()

    def use(self, key: int, take_in: bool) -> bool:
        found = key in self.held
        if found and self.policy == "lru":
            self.held.move_to_end(key)
        if not found and take_in and self.capacity:
            if len(self.held) == self.capacity:
                self.held.popitem(last=False)
            self.held[key] = True
        return found


BATCHES = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 11), max_size=15)), max_size=8)


@pytest.mark.parametrize("policy", ["fifo", "lru"])
@given(capacity=st.integers(0, 14), batches=BATCHES)
def test_a_queue_holds_what_the_naive_one_holds(policy, capacity, batches):
    queue, naive = Queue(12, capacity, policy), Naive(min(capacity, 12), policy)
    for take_in, keys in batches:
        found = (queue.access if take_in else queue.touch)(np.array(keys, np.int64))
        assert [slot != NONE for slot in found] == [naive.use(key, take_in) for key in keys]
        held = np.flatnonzero(queue.slots != NONE)
        assert set(held) == set(naive.held) and len(held) <= capacity
        assert all(queue.keys[queue.slots[key]] == key for key in held), "a slot is its key's"
        resumed = Queue(12, capacity, policy)
        resumed.load_state_dict(queue.state_dict())
        queue = resumed


def test_a_cycle_longer_than_the_queue_never_hits():
    for policy in ("fifo", "lru"):
        queue = Queue(10, 9, policy)
        assert all((queue.access(np.arange(10)) == NONE).all() for _ in range(3))
        whole = Queue(10, 10, policy)
        whole.access(np.arange(10))
        assert (whole.access(np.arange(10)) != NONE).all()


def test_a_selection_holds_the_first_of_its_keys():
    held = Selection(6, 3, [4, 1, 5, 0])
    np.testing.assert_array_equal(held.slots[[0, 1, 2, 4, 5]], [NONE, 1, NONE, 0, 2])
    assert held.capacity == 3 and Selection(6, 9, [4, 1]).capacity == 2


def places(*numbers):
    return torch.tensor(numbers, dtype=torch.int64)


def test_features_in_the_own_tier_are_assembled_once_and_hidden_rows_every_time(monkeypatch):
    """Layer 0's halo is the same memory, and unwritten where nothing comes in."""
    monkeypatch.setattr(tier_rows, "SharedRows", lambda *given, **more: None)
    tiers = SimpleNamespace(local=SimpleNamespace(capacity=3), shared=SimpleNamespace(capacity=0))
    rows = tier_rows.TierRows(
        tiers, SimpleNamespace(device="cpu", recorder=Recorder()), {0: 2, 1: 2}, range(1)
    )
    x, nothing = torch.arange(6.0).reshape(3, 2), (torch.empty(0, 2), places())
    none, every = places(), places(0, 1, 2)

    def fetch(direct, held, kept):
        return SimpleNamespace(
            local_places=held, local_slots=held, direct=SimpleNamespace(places=direct), shared_places=none,
            shared_slots=none, keep_places=kept, keep_slots=kept,
        )  # fmt: skip

    for layer in (0, 1):
        first, oldest = rows.assemble(layer, fetch(every, none, every), 0, 3, x, nothing)
        version = first._version
        second, still = rows.assemble(layer, fetch(none, every, none), 1, 3, None, nothing)
        assert torch.equal(second, x) and (oldest, still) == (0, 0)
        assert (second is first and second._version == version) == (layer == 0)
    third, _ = rows.assemble(0, fetch(places(1), places(0, 2), none), 2, 3, 10 * x[1:2], nothing)
    assert third is rows.features and torch.equal(third, x * torch.tensor([[1.0], [10.0], [1.0]]))
