"""Memory that is freed stays with the process, until it is given back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.heap import MAPPED, Heap
from harness.core.kernels.huge_pages import PAGE, HugePages
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.data.partition.shard import Csr
from tests.launching import fresh_python

PROGRAM = """
import psutil, torch
from harness.base.heap import give_back_freed_memory, keep_freed_memory
keep_freed_memory()
held = lambda: psutil.Process().memory_info().rss
# Pieces of 1 MB, every second of which stays, so that no hole is larger.
pieces = [torch.ones(1 << 18) for _ in range(200)]
full = held()
stays = pieces[::2]
del pieces
freed = held()
give_back_freed_memory()
print(full - freed, freed - held())
"""


def test_what_is_freed_is_kept_and_given_back_when_asked_for():
    at_once, when_asked = map(int, fresh_python(PROGRAM).stdout.split())
    assert at_once < 20e6 and when_asked > 80e6


PLACES = """
from harness.base.heap import keep_freed_memory, start_without_cache
start_without_cache()
import torch
keep_freed_memory()
x = torch.rand(1 << 20)
print(len({torch.relu(x).data_ptr() for _ in range(20)}))
"""


def test_a_tensor_lies_where_the_last_one_of_its_size_did_unless_threads_are_told_to_keep_pieces():
    usual = fresh_python(PLACES, GLIBC_TUNABLES="")
    own = fresh_python(PLACES, GLIBC_TUNABLES="glibc.malloc.tcache_count=7")
    taken_away = fresh_python(PLACES, GLIBC_TUNABLES="", HALOBENCH_STARTED="1")
    assert int(usual.stdout) == 1 and int(own.stdout) > 1 and int(taken_away.stdout) > 1


MB = 1 << 20


@given(
    st.lists(
        st.one_of(st.tuples(st.integers(1 << 16, 64 * MB), st.booleans()), st.integers(0, 9), st.none()),
        max_size=60,
    )
)
def test_a_planned_heap_lays_no_block_over_another_and_holds_what_was_touched(steps):
    """A step takes a block, gives one of those held, or trims."""
    heap, held = Heap(), []
    assert heap.take(Heap.LEAST - 1, True) is heap.take(MAPPED, True) is None, (
        "too small, and mapped by itself"
    )
    for step in steps:
        if isinstance(step, tuple):
            held.append((step[0], heap.take(*step)))
        elif step is not None and step < len(held):
            heap.give(held.pop(step)[1])
        elif step is None:
            heap.trim()
            assert heap.idle == 0
        places = sorted((begin, max(kept, size)) for size, (begin, kept) in held)
        assert all(a + size <= b for (a, size), (b, _) in zip(places, places[1:]))
        assert heap.idle >= 0


def test_a_gap_serves_again_what_is_smaller_and_joins_its_neighbours():
    heap = Heap()
    first, second, last = (heap.take(size * MB, False) for size in (2, 3, 1))
    heap.give(first)
    heap.give(second)
    assert 5 * MB <= heap.idle < 5 * MB + 100
    assert heap.take(5 * MB, False)[0] == first[0] and heap.idle == 0
    heap.give(last)
    assert heap.idle >= MB and heap.take(4 * MB, False)[0] == last[0] and heap.idle == 0


def test_gaps_join_where_one_between_them_was_filled():
    heap = Heap()
    first, second, third, _ = (heap.take(2 * MB, False) for _ in range(4))
    heap.give(first)
    assert heap.take(2 * MB, False) == first
    heap.give(third)
    heap.give(second)
    assert heap.take(4 * MB, False)[0] == second[0]


def test_a_tensor_does_not_fit_into_the_gap_of_one_of_its_size_and_into_two_gaps_it_does():
    heap = Heap()
    first, second, last = (heap.take(MB, True) for _ in range(3))
    assert all((begin + Heap.HEADER) % Heap.ALIGNED == 0 for begin, _ in (first, second, last))
    heap.give(first)
    between = heap.take(MB, True)
    assert between[0] > last[0]
    heap.give(second)
    assert heap.take(MB, True)[0] == first[0]


@pytest.mark.parametrize("width", [3, 130, 300])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_product_packs_rows_in_as_much_memory_as_it_says(width, scaled):
    rng = np.random.default_rng(width)
    block = Csr(np.arange(0, 40001, 40, dtype=np.int32), rng.integers(0, 900, 40000, dtype=np.int32), 900)
    memory = HugePages()
    product, x = NumbaProduct(block, memory=memory), torch.randn(900, width)
    product.apply(x, None, torch.rand(900) if scaled else None, False, torch.empty(1000, width), False)
    packed, _ = product.memory(width, 4, not scaled)
    assert len(memory.kept) == -(-packed // PAGE) * PAGE
