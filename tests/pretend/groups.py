"""What tests of the pretended NCCL ask of two pooled workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from harness.comm.comm import Comm
from harness.comm.nccl import NcclTransport
from harness.comm.recorder import Recorder
from tests.pretend.install import pretended
from tests.pretend.tally import DRAIN


def operations(comm: Comm) -> dict[str, Any]:
    """An operation of each kind, and two waits for the device."""
    recorder = Recorder()
    recorder.begin_epoch(0)
    with pretended(recorder, nccl=True) as tally, recorder.train():
        nccl, one_each = NcclTransport(), [2 * int(p != comm.rank) for p in range(2)]
        rows = torch.full((2, 1), 10.0 * comm.rank, device="cuda")
        received = torch.zeros(2, 1, device="cuda")
        exchange = nccl.exchange(received, rows, one_each, one_each)
        early = received.cpu().numpy()
        torch.cuda.synchronize()
        exchange.wait()
        torch.cuda.synchronize()
        total = torch.full((2,), comm.rank + 1, device="cuda")
        nccl.all_reduce(total).wait()
        block = torch.full((2,), 7 * comm.rank, device="cuda")
        nccl.broadcast({1: block}).wait()
        return {
            "early": early,
            "exchanged": received.tolist(),
            "summed": total.tolist(),
            "told": block.tolist(),
            "drains": tally.count(DRAIN, 0),
        }


def on_the_host(comm: Comm) -> None:
    with pretended(Recorder(), nccl=True):
        NcclTransport().broadcast({0: torch.zeros(2)})


def strided(comm: Comm) -> None:
    with pretended(Recorder(), nccl=True):
        NcclTransport().all_reduce(torch.zeros(2, 3, device="cuda").t())


def short(comm: Comm) -> None:
    with pretended(Recorder(), nccl=True):
        NcclTransport().all_reduce(torch.zeros(2, dtype=torch.int16, device="cuda"))


def another_order(comm: Comm) -> None:
    """Worker 1 begins with the broadcast."""
    with pretended(Recorder(), nccl=True):
        nccl, x = NcclTransport(), torch.zeros(2, device="cuda")
        first = nccl.all_reduce(x) if comm.rank == 0 else nccl.broadcast({0: x})
        first.wait()


def another_size(comm: Comm) -> None:
    """Worker 0 sends 3 rows, of which worker 1 knows of 2."""
    with pretended(Recorder(), nccl=True):
        send, receive = ([0, 3], [0, 2]) if comm.rank == 0 else ([2, 0], [2, 0])
        rows = torch.zeros(max(send), 1, device="cuda")
        NcclTransport().exchange(torch.zeros(2, 1, device="cuda"), rows, receive, send).wait()


def written_in_flight(comm: Comm, which: int) -> None:
    """Write what worker 0 receives (0) or sends (1)."""
    with pretended(Recorder(), nccl=True):
        counts = [int(p != comm.rank) for p in range(2)]
        tensors = torch.zeros(1, 1, device="cuda"), torch.zeros(1, 1, device="cuda")
        exchange = NcclTransport().exchange(*tensors, counts, counts)
        tensors[which].fill_(5.0)
        exchange.wait()


BEHIND, BEYOND = 100, 300  # kernels
RATE, ROWS = 1e6, 1000
LINK_S = ROWS * 4 / RATE


def behind(comm: Comm) -> SimpleNamespace:
    """An epoch of a device that is behind its host: BEHIND kernels, an exchange and a sum posted behind them,
    the sum waited for, and the exchange only behind BEYOND kernels more, which take longer than it.
    """
    recorder = Recorder()
    recorder.begin_epoch(0)
    with pretended(recorder, nccl=True, rate=RATE):
        own = Comm(comm.rank, comm.size, torch.device("cuda", 0), recorder, NcclTransport())
        x, total = torch.zeros(ROWS, 1, device="cuda"), torch.ones(2, device="cuda")
        counts = [ROWS * int(p != comm.rank) for p in range(2)]
        own.barrier()  # from here on the two workers' times are the same
        with recorder.train():
            recorder.segment("compute", "forward")
            for _ in range(BEHIND):
                x += 1
            recorder.segment("rest", "post")
            flight, _ = own.start_exchange(x, counts, counts, 1, "forward", "halo")
            recorder.segment("rest", "after")
            recorder.segment("rest", "sum")
            own.all_reduce(total, "weights")
            recorder.metric("value", x[0, 0] * total[0], 2)
            recorder.segment("compute", "backward")
            for _ in range(BEYOND):
                total += 1
            flight.wait()
        own.drain()
    epoch = recorder.epoch
    return SimpleNamespace(train=epoch.train, spans=epoch.spans, metrics=epoch.metrics)
