"""Memory that several processes of one host map, and that is gone with the last of them, however they end.

It is a file without a name (memfd): its maker tells the others its process, the descriptor and a label, and
they open it through the maker's descriptors in /proc, which only this user's processes can. A run that is
killed at any moment leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path


def make(label: str, length: int) -> int:
    """The descriptor of `length` bytes of zeros, to be closed once everybody has them mapped: maps stay.
    OSError where there are none to be had.
    """
    descriptor = os.memfd_create(label)
    try:
        os.ftruncate(descriptor, length)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_of(process: int, descriptor: int, label: str, length: int) -> mmap.mmap:
    """Map what another process, or this one, has made. FileNotFoundError where `process` has no such memory:
    in another container or on another host its number means another process.
    """
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if os.readlink(path) != f"/memfd:{label} (deleted)":
        raise FileNotFoundError(f"process {process} is another one here")
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)
