"""The pretended GPU itself: it refuses what CUDA and NCCL refuse, and counts what the host of a GPU waits
for. That it computes what the CPU does is said of every system in tests/test_pretend_systems.py.
"""

import numpy as np
import pytest
import torch

from harness.comm.recorder import Recorder
from harness.core.dropout import dropout
from tests.pretend import groups
from tests.pretend.install import pretended
from tests.pretend.tally import LAUNCH, SYNCHRONISATION, Tally
from tests.pretend.tensor import MixedDevices

CUDA = torch.device("cuda", 0)


@pytest.fixture
def tally():
    """The device, in an epoch that is running."""
    recorder = Recorder()
    recorder.begin_epoch(0)
    with pretended(recorder, nccl=False) as tally, recorder.train():
        yield tally


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
        (lambda x, mask, rows: x.__setitem__(mask, 7.0), (0, 1)),
        (lambda x, mask, rows: x.copy_(torch.ones(4), non_blocking=True), (0, 1)),
        (lambda x, mask, rows: torch.ones(4).to(CUDA, non_blocking=True), (0, 1)),
        (lambda x, mask, rows: x.copy_(torch.ones(4)), (1, 1)),
        (lambda x, mask, rows: torch.ones(4).to(CUDA), (1, 1)),
        (lambda x, mask, rows: torch.tensor([1, 2], device=CUDA), (1, 1)),
        (lambda x, mask, rows: x.cpu(), (1, 1)),
        (lambda x, mask, rows: x[mask], (1, 1)),
        (lambda x, mask, rows: x[torch.tensor([1])], (1, 1)),
        (lambda x, mask, rows: mask.nonzero(), (1, 1)),
        (lambda x, mask, rows: x[:2].repeat_interleave(rows), (1, 2)),
        (lambda x, mask, rows: x.tolist(), (1, 0)),
        (lambda x, mask, rows: torch.cuda.synchronize(CUDA), (1, 0)),
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
        (groups.another_size, (), r"all_to_all.*: worker 0 sends 3 rows, of which worker 1 expects 2"),
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
