"""What workers tell each other of themselves before they form a group, and what each then computes from it,
with the same result on all: who is on which host, which GPU each takes, and what carries their bytes.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from harness.base.errors import InputError
from harness.base.terminal import counted

NAMESPACES = ("/proc/self/ns/net", "/proc/self/ns/pid")
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Member:
    """A worker, as it tells of itself.

    host    a name that is the same on workers that share a host's memory and loopback interface
    gpus    the GPUs that it sees, in CUDA's order, each by a name that no other GPU has
    wrong   why it cannot take part, in one sentence; "" where it can
    """

    host: str
    gpus: tuple[str, ...] = ()
    wrong: str = ""


@dataclass(frozen=True)
class WorkerPlace:
    """A worker's place among all, as they agreed.

    hosts     ranks of the workers, host by host
    gpus      by rank: the name of each worker's GPU; None for a worker on the CPU
    device    this worker's device
    note      what a user should know of the choice, in one sentence; "" where it is what was asked for
    """

    rank: int
    hosts: tuple[tuple[int, ...], ...]
    gpus: tuple[str | None, ...]
    device: torch.device
    note: str = ""

    @classmethod
    def on_cpu(cls, rank: int, size: int) -> WorkerPlace:
        """The place of a worker on the CPU, all workers being on one host."""
        return cls(rank, (tuple(range(size)),), (None,) * size, torch.device("cpu"))

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.gpus)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Ranks of the workers on this host, this one among them."""
        return next(ranks for ranks in self.hosts if self.rank in ranks)

    @property
    def sharing(self) -> int:
        """How many workers use this worker's GPU, or where it has none its host; itself among them."""
        own = self.gpus[self.rank]
        return len(self.neighbours) if own is None else self.gpus.count(own)

    @property
    def backend(self) -> str:
        """torch.distributed's: NCCL, and gloo for host memory, where each worker has a GPU of its own; else
        gloo."""
        alone = None not in self.gpus and len(set(self.gpus)) == len(self.gpus)
        return "cpu:gloo,cuda:nccl" if alone else "gloo"


def myself(device: str, wrong: str = "") -> Member:
    """This worker, on this host; one that is to train on `device` "cpu" does not look for GPUs."""
    return Member(host_name(), visible_gpus() if device != "cpu" else (), wrong or wrong_interface())


def wrong_interface() -> str:
    """What is wrong with GLOO_SOCKET_IFNAME, in one sentence; "" where it is not set or names interfaces."""
    names, known = os.environ.get("GLOO_SOCKET_IFNAME"), sorted(psutil.net_if_addrs())
    if not names or set(names.split(",")) <= set(known):
        return ""
    return f"GLOO_SOCKET_IFNAME={names} is no network interface of this host; give one of {', '.join(known)}"


def host_name() -> str:
    """A hash that two processes share if they run on one host, in the same network and process namespaces. So
    each container on a machine counts as a host of its own: from outside, neither its loopback interface nor
    its processes (through which memory is shared) need be reachable.
    """
    told = [socket.gethostname(), *(os.readlink(path) for path in NAMESPACES if os.path.lexists(path))]
    if BOOT.exists():
        told.append(BOOT.read_text().strip())
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def visible_gpus() -> tuple[str, ...]:
    """The UUIDs of the GPUs that this process sees, in CUDA's order. Device numbers would not do: what two
    processes call device 0 may be two devices.
    """
    if not torch.cuda.is_available():
        return ()
    return tuple(
        str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())
    )


def seated(members: Sequence[Member], rank: int, device: str) -> WorkerPlace:
    """The place of worker `rank`, from what all `members` told. Every worker takes the same decision.

    device   "auto": the GPUs if every worker sees one, else the CPU; "cpu"; "cuda": the GPUs

    Raises InputError, on all workers alike, where one of them cannot take part, or sees no GPU under "cuda".
    """
    refused = {k: member.wrong for k, member in enumerate(members) if member.wrong}
    if refused:
        first = min(refused)
        alike = len(refused) == len(members) and len(set(refused.values())) == 1
        raise InputError(refused[first] if alike else f"worker {first}: {refused[first]}")
    names = list(dict.fromkeys(member.host for member in members))
    hosts = tuple(tuple(k for k, m in enumerate(members) if m.host == name) for name in names)
    # On each host, worker k (counted there) takes the GPU number k of those that it sees, from 0 again where
    # they are fewer; a worker that sees a single GPU takes that.
    turn = {k: at for ranks in hosts for at, k in enumerate(ranks)}
    indices = {k: turn[k] % len(m.gpus) for k, m in enumerate(members) if m.gpus and device != "cpu"}
    lacking = [k for k in range(len(members)) if k not in indices]
    note = ""
    if lacking and device == "cuda":
        raise InputError(
            "device=cuda but no CUDA device is visible"
            + (f" to {workers(lacking)}" if indices else "")
            + "; give device=cpu"
        )
    if lacking and indices:
        note = (
            f"device=auto: no CUDA device is visible to {workers(lacking)}, so all workers train on the CPU"
        )
        indices = {}
    elif lacking and device == "auto" and driver_gpus():
        note = (
            f"device=auto: the driver lists {counted(driver_gpus(), 'GPU')}, of which torch"
            f" {torch.__version__} can use none, so the workers train on the CPU"
        )
    gpus = tuple(members[k].gpus[indices[k]] if indices else None for k in range(len(members)))
    own = torch.device("cuda", indices[rank]) if indices else torch.device("cpu")
    seat = WorkerPlace(rank, hosts, gpus, own, note)
    if indices and seat.backend == "gloo":
        shared = f"{counted(len(members), 'worker')} share {counted(len(set(gpus)), 'GPU')}"
        note = f"{shared}: rows travel through host memory, not through NCCL"
        seat = WorkerPlace(rank, hosts, gpus, own, note)
    return seat


def driver_gpus() -> int:
    """How many GPUs NVIDIA's driver lists on this host, whatever torch can use."""
    return len(list(Path("/proc/driver/nvidia/gpus").glob("*/information")))


def workers(ranks: Sequence[int]) -> str:
    """ "worker 3", or "workers 1 and 3"."""
    if len(ranks) == 1:
        return f"worker {ranks[0]}"
    return f"workers {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
