"""What the operating system tells of the processor and of memory."""

from __future__ import annotations

from pathlib import Path

import psutil

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
MEMORY = Path("/sys/fs/cgroup/memory.max")  # a container's share


def memory_bytes(limit: Path = MEMORY) -> int:
    """Bytes of memory that this machine or its container has, swap included."""
    total: int = psutil.virtual_memory().total + psutil.swap_memory().total
    try:
        return min(total, int(limit.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return total


def cache_bytes(level: int, caches: Path = CACHES) -> int:
    """Size of the first core's data cache of a level (1 is the nearest); 0 where Linux does not tell."""
    for index in sorted(caches.glob("index*")):
        try:
            kind, at, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and at == str(level) and size.endswith("K"):
            return int(size[:-1]) << 10
    return 0
