"""The speeds of a cluster's devices, measured on the device that a worker has."""

import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from harness.base.machine import cpu_field
from harness.core.cluster import GIB, TIMES, Device

ROWS = {"cpu": 512, "cuda": 11585}  # of the square matrix; 11585 as in section 4.3 of CaPGNN
DENSITY = 0.004  # of the sparse matrix: Table 1 of CaPGNN has 99.6 % zeros
REPEATS = 5


def measure(device: torch.device, host: int, sharing: int) -> Device:
    """This worker's device: medians of a few passes, in seconds. sharing: how many workers of the host share
    its memory, where `device` is the CPU.
    """
    rows = ROWS[device.type]
    dense = torch.rand(rows, rows, device=device)
    there = torch.rand(rows, rows, device=device) < DENSITY
    with warnings.catch_warnings():  # torch warns of a process's first CSR matrix
        warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
        sparse = (dense * there).to_sparse_csr()
    on_host = torch.rand(rows, rows, pin_memory=device.type == "cuda")
    memory: float
    if device.type == "cuda":
        kind, memory = (
            torch.cuda.get_device_name(device),
            torch.cuda.get_device_properties(device).total_memory,
        )
    else:
        kind, memory = processor(), host_memory() / sharing
    return Device(
        kind=kind,
        host=host,
        memory_gb=memory / GIB,
        mm_s=_seconds(lambda: dense @ dense, device),
        spmm_s=_seconds(lambda: sparse @ dense, device),
        h2d_s=_seconds(lambda: dense.copy_(on_host), device),
        d2h_s=_seconds(lambda: on_host.copy_(dense), device),
        idt_s=_seconds(lambda: dense.clone(), device),
    )


def pooled(devices: Sequence[Device]) -> list[Device]:
    """The same devices, each with the median times of all devices of its kind.

    Devices of one kind then count as alike: what their measurements differ by is mostly the moment at which
    they were made.
    """
    kinds: dict[str, list[Device]] = {}
    for device in devices:
        kinds.setdefault(device.kind, []).append(device)
    typical = {
        kind: {name: statistics.median(getattr(d, name) for d in group) for name in TIMES}
        for kind, group in kinds.items()
    }
    return [replace(device, **typical[device.kind]) for device in devices]


def host_memory() -> int:
    """Bytes of this host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def processor() -> str:
    """The name of this host's processor."""
    return cpu_field("model name") or platform.processor() or platform.machine()


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    def once() -> float:
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    once()
    return statistics.median(once() for _ in range(REPEATS))
