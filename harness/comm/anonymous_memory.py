"""Memory that several processes of one host map, and that is gone with the last of them, however they end.

On Linux it is a file without a name (memfd): its maker tells the others its process, the descriptor and a
label, and they open it through the maker's descriptors in /proc, which only this user's processes can. A run
that is killed at any moment leaves nothing behind. Elsewhere it is a file in the folder of temporary files,
named by its label and removed by `release`.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

NAMELESS = hasattr(os, "memfd_create")


def make(label: str, length: int) -> int:
    """The descriptor of `length` bytes of zeros, to be released once everybody has them mapped. OSError where
    there are none to be had.
    """
    if NAMELESS:
        descriptor = os.memfd_create(label)
    else:
        descriptor = os.open(_named(label), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, length)
    except OSError:
        release(descriptor, label)
        raise
    return descriptor


def open_of(process: int, descriptor: int, label: str, length: int) -> mmap.mmap:
    """Map what another process, or this one, has made. FileNotFoundError where `process` has no such memory:
    in another container or on another host its number means another process.
    """
    path = Path(f"/proc/{process}/fd/{descriptor}") if NAMELESS else _named(label)
    if NAMELESS and os.readlink(path) != f"/memfd:{label} (deleted)":
        raise FileNotFoundError(f"process {process} is another one here")
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


def release(descriptor: int, label: str) -> None:
    """Nobody else will map it. Maps stay."""
    os.close(descriptor)
    if not NAMELESS:
        _named(label).unlink(missing_ok=True)


def _named(label: str) -> Path:
    return Path(tempfile.gettempdir()) / label
