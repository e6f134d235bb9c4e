"""Compiling what many processes need once."""

import contextlib
import functools
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from filelock import FileLock
from numba.core import event
from numba.core.dispatcher import Dispatcher

from harness.base.places import ROOT

PATIENCE = 120.0  # seconds: the longest loops take 10, and a process may be stopped while it compiles one
_compile = Dispatcher.compile  # numba's own


def take_turns() -> None:
    """Let one process compile at a time, of all on this machine that have called this: the next finds in
    numba's cache what it needs too. Workers of a run need the same loops at the same time. Without a folder
    of the user's that can be written, nothing is changed."""
    # The user's own folder: in /tmp another user could make the file first and hold it.
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halobench"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return  # nowhere to keep a lock: all compile for themselves, which takes longer
    if not os.access(folder, os.W_OK):
        return
    place = folder / f"compiling-{zlib.crc32(bytes(ROOT)):x}.lock"

    @functools.cache
    def lock(process: int) -> FileLock:
        """One lock per process: a forked process must not hold its parent's. It is the same lock on every
        call, since compiling one function compiles others within it."""
        return FileLock(place, thread_local=False)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        own = lock(os.getpid())
        try:
            own.acquire(timeout=PATIENCE)
        # A file system that has no locks, as of some clusters; or whoever has the lock was stopped by Ctrl-Z.
        except (OSError, NotImplementedError):
            yield
            return
        try:
            yield
        finally:
            own.release()

    def compile_in_turn(self, signature):
        with turn():
            return _compile(self, signature)

    Dispatcher.compile = compile_in_turn  # type: ignore[method-assign]  # numba has no hook for this


def before_compiling(say: Callable[[], None]) -> AbstractContextManager:
    """While this is open, call `say` once, when this process begins to compile what numba's cache lacks."""
    return event.install_listener("numba:compile", _First(say))


class _First(event.Listener):
    def __init__(self, say: Callable[[], None]):
        self.say, self.said = say, False

    def on_start(self, event: event.Event) -> None:
        if not self.said:
            self.said = True
            self.say()

    def on_end(self, event: event.Event) -> None:
        """Nothing is said then."""
