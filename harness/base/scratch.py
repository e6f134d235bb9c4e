"""Folders for what a process needs until it ends, removed with it, or by the next process if it was killed.

Its owner holds a lock of the kernel's (flock) on the folder itself for as long as it lives, and so do the
processes that it forks. A folder whose lock can be had is nobody's any more. A file in it says that it was
made here, by its number on the disk: a folder of such a name that came from elsewhere is never removed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "halobench-scratch-"
MARK = ".made-by-halobench"  # the file in a folder that holds the number of its inode


def place(name: str, parent: Path | None = None, prefix: str = PREFIX) -> Path:
    """Where the folder called `name` is: in `parent`, by default the folder of temporary files."""
    return (parent or Path(tempfile.gettempdir())) / f"{prefix}{name}"


@contextlib.contextmanager
def scratch(name: str | None = None, parent: Path | None = None, prefix: str = PREFIX) -> Iterator[Path]:
    """A folder that only this user can enter, there for as long as this is open; without a name one is drawn.

    First, the folders of the same parent and prefix are removed whose owners were killed. OSError where it
    cannot be made, or `name` is taken."""
    beside = place("", parent, prefix).parent
    _remove_left(beside, prefix)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=beside)) if name is None else place(name, beside, prefix)
    if name is not None:
        path.mkdir(mode=0o700)
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # as where no more files can be opened; nobody would ever remove a folder without a mark
        path.rmdir()
        raise
    try:
        # Another process may hold it for the moment in which it sees that nothing says who made the folder.
        # A file system without locks gives nobody one, so the folder is never taken.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        (path / MARK).write_text(_number(lock))
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _number(folder: int) -> str:
    return str(os.fstat(folder).st_ino)


def _marked(folder: int) -> bool:
    """Whether a folder says that it is the one that was made here. OSError where it says nothing."""
    mark = os.open(MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        return os.read(mark, 32) == _number(folder).encode()
    finally:
        os.close(mark)


def _remove_left(parent: Path, prefix: str) -> None:
    """Remove the folders that were made here for this user and whose lock can be had."""
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
                    if _marked(lock):
                        shutil.rmtree(entry.path, ignore_errors=True)
            os.close(lock)
