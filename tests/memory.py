"""Which of our files in memory a process has mapped, as Linux tells it."""

from __future__ import annotations

import sys

import psutil
import pytest

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="reads a process's memory maps as Linux gives them"
)


def shared_memory(process: psutil.Process) -> list[str]:
    """Paths of the named files called halobench-*, of which a store or a cache is made; a file that is
    deleted keeps its path for as long as it is mapped.
    """
    return sorted(
        {part.path.removesuffix(" (deleted)") for part in process.memory_maps() if "/halobench-" in part.path}
    )


def exchanges_through_memory(process: psutil.Process) -> bool:
    """Whether it has the nameless memory mapped through which workers exchange."""
    return any("memfd:halobench" in part.path for part in process.memory_maps())
