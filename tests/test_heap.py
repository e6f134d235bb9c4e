"""Memory that is freed stays with the process, until it is given back."""

import contextlib
import functools
import os
import runpy
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.base.heap import CACHE, MAPPED, STARTED, TUNABLES, Heap
from harness.core.kernels.huge_pages import PAGE, HugePages
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.data.partition.shard import Csr
from tests.launching import fresh_python

PROGRAM = """
import os
from harness.base.heap import TUNABLES, give_back_freed_memory, keep_freed_memory, start_without_cache
start_without_cache()
print(os.environ[TUNABLES])
if "a=1" not in os.environ[TUNABLES]:
    raise SystemExit  # one process does the rest
import ctypes, psutil, torch
keep_freed_memory()
x = torch.rand(1 << 20)
print(len({torch.relu(x).data_ptr() for _ in range(20)}))
libc = ctypes.CDLL("libc.so.6")
info = libc.mallinfo2
fields = {"_fields_": [(name, ctypes.c_size_t) for name in "abcdefghij"]}
info.restype = type("Info", (ctypes.Structure,), fields)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for piece in [libc.malloc(56) for _ in range(50)][::2]:
    libc.free(piece)
print(info().c)  # pieces in fast bins
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


def test_a_process_starts_anew_once_and_a_tensor_then_lies_where_the_last_one_of_its_size_did():
    """What is freed is kept, and given back when asked for. A setting of one's own stays."""
    said = {given: fresh_python(PROGRAM, GLIBC_TUNABLES=given).stdout for given in ("", "a=1", f"{CACHE}=7")}
    assert (said[""], said[f"{CACHE}=7"]) == (f"{CACHE}=0\n", f"{CACHE}=7\n")
    tunables, places, in_fast_bins, at_once, when_asked = said["a=1"].split()
    assert (tunables, places, in_fast_bins) == (f"a=1:{CACHE}=0", "1", "0")
    assert int(at_once) < 20e6 and int(when_asked) > 80e6
    taken_away = fresh_python(PROGRAM, GLIBC_TUNABLES="", **{STARTED: "1"})
    assert taken_away.stdout == "\n"


def test_commands_and_workers_of_torchrun_start_anew_and_what_only_calls_them_does_not(monkeypatch):
    """Nor does a shell that asks for completion, which must not wait."""
    started: list[list[str]] = []

    def execv(_, words):
        started.append(words)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    for name in (TUNABLES, STARTED):
        monkeypatch.setenv(name, "")  # so that it is afterwards as it was

    def words_of(call, *words, typed=None):
        monkeypatch.setattr(sys, "argv", ["it", *words])
        monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "it", *(words if typed is None else typed)])
        for name in (TUNABLES, STARTED):
            os.environ.pop(name, None)
        with contextlib.suppress(SystemExit):
            call()
        return started.pop()[1:] if started else None

    assert words_of(cli.main, "--version") == ["-m", "it", "--version"]
    assert words_of(lambda: cli.main(["--version"]), "--version") is None
    assert words_of(cli.main, "-sc", "query=bash") is None
    worker = functools.partial(runpy.run_module, "harness.run.worker", run_name="__main__")
    assert words_of(worker, "RUN_DIR") == ["-m", "it", "RUN_DIR"]
    assert words_of(cli.main, "--version", typed=["notebook"]) is None


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
