"""What the operating system tells of the processor and of memory."""

import ctypes
import errno
import mmap
import os
import resource
import signal
from pathlib import Path

import psutil

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CPUS = Path("/proc/cpuinfo")
MEMORY = Path("/sys/fs/cgroup/memory.max")  # a container's share


def memory_bytes() -> int:
    """Bytes of memory of this machine, swap included, or the limit of its container where that is lower."""
    total: int = psutil.virtual_memory().total + psutil.swap_memory().total
    try:
        return min(total, int(MEMORY.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return total


def cache_bytes(level: int, caches: Path = CACHES) -> int:
    """Bytes of the first core's data cache of a level (1 is the nearest); 0 where Linux does not tell."""
    for index in sorted(caches.glob("index*")):
        try:
            kind, at, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and at == str(level) and size.endswith("K"):
            return int(size[:-1]) << 10
    return 0


def cpu_field(*names: str) -> str:
    """What Linux tells of the first core's processor under one of these names; "" where it tells nothing."""
    try:
        lines = CPUS.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


# What runs out, by the number of the error.
LIMITS = {
    errno.ENOMEM: "there is not enough memory",
    errno.EAGAIN: "no more processes or threads can be started (ulimit -u says how many may be)",
    errno.EMFILE: "no more files can be opened (ulimit -n says how many may be)",
    errno.ENFILE: "no more files can be opened on this machine",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your share of the disk is full",
    errno.EROFS: "the disk can only be read",
}


def end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which started it, ends.

    The kernel does so even where this process is stopped, and could not notice by itself."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def limit(which: int, value: int) -> None:
    """Set a limit of this process (`resource.RLIMIT_*`) to `value`, where it is not lower already."""
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


class LimitReached(RuntimeError):
    """A process of a run needed more of this machine than there is; the message says of what."""


def limit_reached(error: BaseException) -> str | None:
    """What this machine lacks, if that is why `error` was raised; None where the error has another cause."""
    if isinstance(error, LimitReached):
        return str(error)
    if isinstance(error, OSError) and error.errno in LIMITS:
        return f"{LIMITS[error.errno]}{f': {error.filename}' if error.filename else ''}"
    if "can't start new thread" in str(error) or "Resource temporarily unavailable" in str(error):
        return LIMITS[errno.EAGAIN]
    return LIMITS[errno.ENOMEM] if out_of_memory(error) else None


def check_machine(error: BaseException, path: object) -> None:
    """Called with the error of reading the file `path`, before the file is blamed: raises LimitReached where
    the machine's limits caused it."""
    if limit := limit_reached(error):
        raise LimitReached(f"{path} cannot be read now: {limit}") from None


def check_room(size: int, path: object) -> None:
    """Raise LimitReached if `size` bytes more of memory cannot be had now. Called before a library reads or
    converts what `path` holds, if that library would end this process where it gets no memory.
    """
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE).close()  # no page of it is touched
    except OSError as error:
        check_machine(error, path)
        raise


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: Python's, numpy's, torch's on the CPU or on a GPU, or a library's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    # A library that does not fit into memory: the loader says so in an error below the package's own.
    loaded: BaseException | None = error
    while isinstance(loaded, ImportError | OSError):
        if "failed to map segment" in str(loaded) or "cannot allocate memory" in str(loaded).lower():
            return True
        loaded = loaded.__context__
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
