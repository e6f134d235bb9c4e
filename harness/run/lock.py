"""One process at a time has a run folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from harness.base import disk
from harness.base.errors import InputError

LOCK = "running.lock"


@contextlib.contextmanager
def locked(run_dir: Path, wait: bool = False) -> Iterator[None]:
    """Keep a run folder for this process. InputError where another has it, it cannot be written, or it holds
    a link, which would be written through.

    wait   where another process has it, say so and wait until it lets go
    """
    disk.refuse_links(run_dir)
    lock = FileLock(run_dir / LOCK)
    lacking = [folder for folder in run_dir.parents if not folder.exists()]
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            used = f"{run_dir} is in use: the same run is going on in another process"
            if not wait:
                raise InputError(f"{used}; wait for it to end") from None
            print(f"note: {used}; waiting for it to end", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise InputError(f"{run_dir} cannot be written ({error.strerror}); give results=FOLDER") from None
    try:
        yield
    finally:
        # A run that was refused before it wrote anything leaves nothing. Whoever wants the folder now finds
        # it in use, or makes it anew.
        with contextlib.suppress(OSError):
            if [path.name for path in run_dir.iterdir()] == [LOCK]:
                (run_dir / LOCK).unlink()
                for folder in (run_dir, *lacking):
                    folder.rmdir()
        lock.release()
