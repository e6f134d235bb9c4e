"""How much of its communication a system hides on the pretended device, over a slowed link."""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch

from harness.comm.clock import DeviceClock
from harness.comm.comm import Comm
from harness.comm.nccl import NcclTransport
from harness.comm.recorder import Recorder
from harness.core.architectures import Gcn
from harness.core.optimisers import Adam
from harness.core.trainer import Trainer
from harness.dev.bench import overlap
from harness.run.config import make_system
from tests.pretend.install import pretended


def observed(comm: Comm, block: dict[str, Any], drains: bool, shard: Any) -> dict[str, Any]:
    """One worker's epochs over a link that is busy for half of the time that workers compute in, and its
    `rate`.

    drains   whether every wait is one for the whole device, what is in flight included
    """

    def passed(rate: float) -> tuple[dict[str, list], Comm]:
        recorder = Recorder()
        with pretended(recorder, nccl=True, rate=rate):
            own = Comm(comm.rank, comm.size, torch.device("cuda", 0), recorder, NcclTransport())
            trainer = Trainer(
                shard,
                own,
                make_system(block),
                Gcn(layers=2, hidden=8, dropout=0.0),
                Adam(),
                seed=1,
                epochs=overlap.EPOCHS,
                kernel="torch",
            )
            return overlap.observe(trainer), comm

    with mock.patch.object(DeviceClock, "wait", drained if drains else DeviceClock.wait):
        rate = overlap.slowed(*passed(float("inf")))
        return {**passed(rate)[0], "rate": rate}


def drained(clock: DeviceClock) -> None:
    torch.cuda.synchronize(clock.device)
