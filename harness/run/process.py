"""Signals between a launcher and the processes it forks: who acts on Ctrl-C, and who dies with whom."""

import contextlib
import resource
import signal
import sys
from collections.abc import Callable, Iterator

import psutil

from harness.base.machine import end_with, limit, memory_bytes

FORKING = 300  # seconds; a fork takes some milliseconds
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class RunFailed(RuntimeError):
    """A process of a run died. The message says which and why; `code` is the exit code of the command."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def killed(what: str, code: int, memory: str, other: str = "") -> RunFailed:
    """The error to raise where a signal ended the process `what`; its exit code is minus the signal's number.

    memory, other   the end of the sentence where it was SIGKILL, which a lack of memory brings; else
    """
    name = signal.Signals(-code).name
    return RunFailed(f"{what} was killed by {name}{memory if -code == signal.SIGKILL else other}", 128 - code)


class Stopped(KeyboardInterrupt):
    """A signal asked this process to stop; `number` says which."""

    def __init__(self, number: int):
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """While this is open, SIGINT, SIGTERM and SIGHUP raise Stopped in the main thread, which must open it."""

    def stop(number, _frame):
        raise Stopped(number)

    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        for number, handler in before.items():
            # A signal that was ignored from the start stays so, as under nohup or in a script's background.
            if handler != signal.SIG_IGN:
                signal.signal(number, stop)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def until_stopped(work: Callable[[], int]) -> int:
    """Run `work` and return what it returns. Where a signal stops it, print one sentence on stderr and return
    128 + signal. For the main thread only."""
    try:
        with stoppable():
            return work()
    except Stopped as stop:
        print(f"{stop}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 128 + stop.number


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """While this is open, hold SIGINT, SIGTERM and SIGHUP back, so that none reaches a child before it has
    called `be_child`.

    Where starting a child hangs, in a handler that some library has for forks, no signal could end this
    process. So an alarm ends it after FORKING seconds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    before = signal.alarm(FORKING)
    try:
        yield
    finally:
        signal.alarm(before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def be_child(parent: int) -> None:
    """To be called by a child first of all: it will die with process `parent`, and leave Ctrl-C to it."""
    end_with(parent)
    # Ctrl-C reaches every process of the terminal; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def limit_memory() -> int:
    """Make allocations of this process fail where they go beyond the machine's memory. Without a limit the
    kernel would end this or another process when the pages are touched. Returns the bytes of that memory.

    The limit is on private data (RLIMIT_DATA): files that are mapped for reading may be larger than memory.
    """
    memory = memory_bytes()
    held = psutil.Process().memory_info().data  # what the parent had mapped
    limit(resource.RLIMIT_DATA, held + memory)
    return memory
