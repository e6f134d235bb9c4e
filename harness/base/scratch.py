"""Folders for what a process needs until it ends, removed with it, or by the next process if it was killed.

Its owner holds a lock of the kernel's (flock) on the folder itself for as long as it lives, and so do the
processes that it forks. A folder whose lock can be had is nobody's any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "halobench-scratch-"


def place(name: str, parent: Path | None = None, prefix: str = PREFIX) -> Path:
    """Where the folder called `name` is: in `parent`, by default the folder of temporary files."""
    return (parent or Path(tempfile.gettempdir())) / f"{prefix}{name}"


@contextlib.contextmanager
def scratch(name: str | None = None, parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """A folder that only this user can enter, there for as long as this is open; without a name one is drawn.

    First, the folders of the same parent and prefix are removed whose owners were killed. OSError where it
    cannot be made, or `name` is taken.
    """
    beside = place("", parent, prefix).parent
    _remove_left(beside, prefix)
    while (made := _make(name, beside, prefix)) is None:
        pass
    path, lock = made
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _make(name: str | None, parent: Path, prefix: str) -> tuple[Path, int] | None:
    """A new folder and its lock; None where another process took it for one that was left, before it was
    locked.
    """
    if name is None:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    else:
        path = place(name, parent, prefix)
        path.mkdir(mode=0o700)
    with contextlib.ExitStack() as stack:
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        except OSError:
            pass  # a file system without locks: nobody else gets one either, so the folder is never taken
        # Locked too late, the folder is gone from its place.
        if not path.exists() or not os.path.samestat(os.stat(path), os.fstat(lock)):
            return None
        stack.pop_all()
    return path, lock


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove this user's folders whose lock can be had."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False):
                continue
            try:
                lock = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue
            with contextlib.suppress(OSError):
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path, ignore_errors=True)
            os.close(lock)
