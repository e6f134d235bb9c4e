"""The pretended GPU itself: it computes what the CPU does, refuses what CUDA and NCCL refuse, and counts what
the host of a GPU waits for.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comm.recorder import Recorder
from harness.core.dropout import dropout
from tests.pretend import groups
from tests.pretend.install import pretended
from tests.pretend.tally import LAUNCH, SYNCHRONISATION, Tally
from tests.pretend.tensor import DeviceTensor, MixedDevices

CUDA = torch.device("cuda", 0)


@pytest.fixture
def tally():
    """The device, in an epoch that is running."""
    recorder = Recorder()
    recorder.begin_epoch(0)
    with pretended(recorder, nccl=False) as tally, recorder.train():
        yield tally


def layer(x: torch.Tensor, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Some of everything: views, writes in place, an index, dropout, a product, a factory."""
    ids = torch.arange(len(x), dtype=torch.int32, device=x.device)
    h = dropout(x, ids, 0.3, 7).relu() @ weight
    total = torch.zeros(len(x) + 1, h.shape[1], dtype=h.dtype, device=x.device)
    total = total.index_add(0, rows, h[rows] * 0.5)
    total[1:].add_(h)
    total[0] = 2.0
    return torch.nn.functional.log_softmax(total, dim=1)


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**16))
@settings(max_examples=8)
def test_values_and_gradients_are_those_of_the_cpu(rows, width, seed):
    generator = torch.Generator().manual_seed(seed)
    x, weight = torch.randn(rows, width, generator=generator), torch.randn(width, 3, generator=generator)
    chosen = torch.randint(rows, (4,), generator=generator)
    weight.requires_grad_()
    want = layer(x, weight, chosen)
    want.sum().backward()
    with pretended(Recorder(), nccl=False):
        there = torch.nn.Parameter(weight.detach().to(CUDA))
        found = layer(x.to(CUDA), there, chosen.to(CUDA))
        found.sum().backward()
        assert type(found) is type(there.grad) is DeviceTensor and found.device == CUDA
        torch.testing.assert_close(found.detach().cpu(), want.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(there.grad.cpu(), weight.grad, rtol=1e-6, atol=1e-6)


def test_views_and_results_in_place_are_the_tensors_that_they_were(tally):
    x = torch.zeros(3, 2, device=CUDA)
    assert x.add_(1) is x and x.to(CUDA) is x
    x.t()[1] += 4
    out = torch.empty(2, 2, device=CUDA)
    assert torch.index_select(x, 0, torch.tensor([2, 0], device=CUDA), out=out) is out
    assert out.tolist() == [[1, 5], [1, 5]]


@pytest.mark.parametrize(
    "mixed",
    [
        lambda there, here: there + here,
        lambda there, here: here @ there,
        lambda there, here: torch.cat([there, here]),
        lambda there, here: torch.add(here, here, out=there),
        lambda there, here: there.index_select(0, torch.tensor([0])),
        lambda there, here: there.to_sparse_csr() @ here,
    ],
)
def test_tensors_of_two_devices_are_refused(tally, mixed):
    with pytest.raises(MixedDevices, match=r"cuda:0 .*cpu"):
        mixed(torch.ones(2, 2, device=CUDA), torch.ones(2, 2))


def test_a_number_of_the_host_is_taken_and_the_hosts_memory_is_not(tally):
    there = torch.ones(2, device=CUDA)
    assert (there * torch.tensor(3.0)).tolist() == [3, 3]
    for reads in (there.numpy, there.data_ptr, lambda: np.asarray(there)):
        with pytest.raises(TypeError, match="cuda:0"):
            reads()


def waits(tally: Tally, work) -> tuple[int, int]:
    """Synchronisations and launches of `work` on x [4] of the device, which is there before."""
    x = torch.arange(4.0, device=CUDA)
    mask, rows = x > 1, torch.tensor([0, 2], device=CUDA)
    tally.counts.clear()
    work(x, mask, rows)
    return tally.count(SYNCHRONISATION, 0), tally.count(LAUNCH, 0)


@pytest.mark.parametrize(
    "work,expected",
    [
        (lambda x, mask, rows: x.view(2, 2).t()[1:].unsqueeze(0), (0, 0)),
        (lambda x, mask, rows: torch.empty_like(x), (0, 0)),
        (lambda x, mask, rows: x * 2 + 1, (0, 2)),
        (lambda x, mask, rows: x[rows], (0, 1)),
        (lambda x, mask, rows: x[2:].copy_(x[:2]), (0, 1)),
        (lambda x, mask, rows: x.__setitem__(0, 7.0), (0, 1)),
        (lambda x, mask, rows: x.__setitem__(mask, 7.0), (0, 1)),
        (lambda x, mask, rows: torch.zeros(3, device=CUDA), (0, 1)),
        (lambda x, mask, rows: x.copy_(torch.ones(4), non_blocking=True), (0, 1)),
        (lambda x, mask, rows: torch.ones(4).to(CUDA, non_blocking=True), (0, 1)),
        (lambda x, mask, rows: x.copy_(torch.ones(4)), (1, 1)),
        (lambda x, mask, rows: torch.ones(4).copy_(x), (1, 1)),
        (lambda x, mask, rows: torch.ones(4).to(CUDA), (1, 1)),
        (lambda x, mask, rows: torch.tensor([1, 2], device=CUDA), (1, 1)),
        (lambda x, mask, rows: x.cpu(), (1, 1)),
        (lambda x, mask, rows: x[mask], (1, 1)),
        (lambda x, mask, rows: x[torch.tensor([1])], (1, 1)),
        (lambda x, mask, rows: mask.nonzero(), (1, 1)),
        (lambda x, mask, rows: rows.unique(), (1, 1)),
        (lambda x, mask, rows: x[:2].repeat_interleave(rows), (1, 2)),
        (lambda x, mask, rows: x.tolist(), (1, 0)),
        (lambda x, mask, rows: torch.cuda.synchronize(CUDA), (1, 0)),
        (lambda x, mask, rows: torch.cuda.current_stream(CUDA).synchronize(), (1, 0)),
    ],
)
def test_what_the_host_waits_for_is_counted(tally, work, expected):
    assert waits(tally, work) == expected


@pytest.mark.parametrize("read", [float, bool, torch.Tensor.item])
def test_a_number_that_is_read_is_a_wait(tally, read):
    assert waits(tally, lambda x, mask, rows: read(x[0]))[0] == 1


def test_a_note_names_the_line_that_asked(tally):
    x, ids = torch.ones(2, 3, device=CUDA), torch.arange(2, dtype=torch.int32, device=CUDA)
    tally.counts.clear()
    dropout(x, ids, 0.5, 1)
    lines = {note.line.partition(":")[0] for note in tally.counts}
    assert lines == {"harness/core/kernels/dropout_device.py"}
    assert all(int(note.line.partition(":")[2]) > 1 for note in tally.counts)


def test_cuda_is_as_it_was_afterwards():
    before = (torch.cuda.synchronize, torch.save, torch.cuda.device_count())
    with pretended(Recorder(), nccl=False):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert (torch.cuda.synchronize, torch.save, torch.cuda.device_count()) == before


@pytest.mark.parametrize(
    "job,given,message",
    [
        (groups.on_the_host, (), "broadcast: Tensors must be CUDA and dense"),
        (groups.strided, (), "all_reduce: Tensors must be contiguous"),
        (groups.short, (), "all_reduce: torch.int16 is no type of NCCL's"),
        (groups.another_order, (), "worker 1 is in broadcast .*, its operation 1; worker 0 is in another"),
        (
            groups.another_size,
            (),
            r"all_to_all.*: worker 0 sends 3 rows, of which worker 1 expects 2",
        ),
        (groups.written_in_flight, (0,), "what it receives was written while it was in flight"),
        (groups.written_in_flight, (1,), "what it sends was written while it was in flight"),
    ],
)
def test_what_nccl_would_refuse_or_hang_in_is_refused(pool, job, given, message):
    with pytest.raises(AssertionError, match=message):
        pool.run(job, 2, *given, transport="sockets")


def test_operations_give_what_gloo_gives_once_they_have_been_waited_for(pool):
    for rank, found in enumerate(pool.run(groups.operations, 2, transport="sockets")):
        assert np.isnan(found["early"]).all(), "who reads before the wait sees nothing of use"
        assert found["exchanged"] == [[10.0 * (1 - rank)], [10.0 * (1 - rank)]]
        assert found["summed"] == [3, 3] and found["told"] == [7, 7]
        assert found["drains"] == 1, "the first of the two waits for the device"
