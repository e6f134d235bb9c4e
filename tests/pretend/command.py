"""`python -m tests.pretend.command GPUS ...`: the command `halobench ...` on so many pretended GPUs.

The launcher, the process group, checkpoints and the trace are the project's own; workers are forked, since no
context of CUDA stands in the way.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist

from harness import cli
from harness.comm import group, members
from harness.comm.nccl import NcclTransport
from harness.comm.recorder import Recorder
from harness.comm.transport import NullTransport
from harness.run import launch
from harness.run import train as training
from tests.pretend.install import pretended


def pretend(gpus: int) -> None:
    """From now on this process, and what it forks, sees GPUs."""
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: gpus
    torch.cuda.set_device = lambda device: None
    members.visible_gpus = lambda: tuple(f"pretended {index}" for index in range(gpus))
    launch.start_method = lambda device: "fork"
    open_group, train = dist.init_process_group, training.train

    def init_process_group(backend: str, **options: Any) -> None:
        open_group("gloo", **options)
        dist.get_backend = lambda group=None: backend

    class Later(NullTransport):
        """In place of NCCL's transport, which takes a device to be made."""

    def train_pretended(*arguments: Any) -> None:
        with pretended(Recorder(), nccl=dist.is_initialized() and "nccl" in dist.get_backend()):
            train(*(NcclTransport() if isinstance(each, Later) else each for each in arguments))

    dist.init_process_group = init_process_group
    group.NcclTransport = Later
    training.train = train_pretended


if __name__ == "__main__":
    pretend(int(sys.argv[1]))
    sys.exit(cli.main(sys.argv[2:]))
