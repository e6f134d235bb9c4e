"""Which rows a bounded cache holds, against a naive simulator."""

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_selection_holds_the_first_of_its_keys():
    held = Selection(6, 3, [4, 1, 5, 0])
    np.testing.assert_array_equal(held.slots[[0, 1, 2, 4, 5]], [NONE, 1, NONE, 0, 2])
    assert held.capacity == 3 and Selection(6, 9, [4, 1]).capacity == 2
