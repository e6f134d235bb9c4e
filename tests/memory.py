"""Which of our memory a process has mapped, as Linux tells it."""

import psutil


def shared_memory(process: psutil.Process) -> list[str]:
    """Labels of the memory that a process has mapped of which a store or a cache is made."""
    return _labels(process, "rows")


def exchanges_through_memory(process: psutil.Process) -> bool:
    """Whether it has the memory mapped through which workers exchange."""
    return bool(_labels(process, "exchange"))


def exchange_bytes(process: psutil.Process) -> int:
    """How much of that memory counts as the process's."""
    maps = process.memory_maps()
    return sum(part.rss for part in maps if part.path.startswith("/memfd:halobench-exchange-"))


def _labels(process: psutil.Process, kind: str) -> list[str]:
    """Memory without a name has a label all the same (`harness.comm.segments`)."""
    begins = f"/memfd:halobench-{kind}-"
    return sorted({part.path for part in process.memory_maps() if part.path.startswith(begins)})
