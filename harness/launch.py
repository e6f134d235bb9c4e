"""The one launch path on one host: fork a worker for each rank through torch's elastic process layer and watch them.

The launcher has torch imported and has run nothing in parallel, so a forked worker starts at once instead of importing
everything again. With CUDA workers are spawned, since a CUDA context does not survive a fork.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, start_processes

from harness import worker
from harness.comm.comm import PeerLost
from harness.config import Run


class RunFailed(RuntimeError):
    """A worker died. The message names its rank and holds its traceback; `code` is the process's exit code."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def launch(run: Run, run_dir: Path) -> None:
    """Train `run` in the prepared `run_dir` and return when every worker has finished.

    Raises RunFailed within seconds of a worker's death, KeyboardInterrupt on Ctrl-C; either way all workers are gone by
    then, and what they traced so far stays readable.
    """
    size = run.settings.gpus
    with tempfile.TemporaryDirectory(prefix="halobench-") as scratch:
        environment = {
            rank: {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
                "HALOBENCH_RENDEZVOUS": os.path.join(scratch, "rendezvous"),
                "TORCHELASTIC_ERROR_FILE": os.path.join(scratch, f"error-{rank}.json"),
            }
            for rank in range(size)
        }
        context = start_processes(
            name="worker", entrypoint=_worker, args={rank: (str(run_dir), os.getpid()) for rank in range(size)},
            envs=environment, logs_specs=DefaultLogsSpecs(log_dir=scratch), start_method=start_method(run.settings.device),
        )
        try:
            with _terminate_raises():
                result = context.wait()
        except (KeyboardInterrupt, SignalException):
            context.close(signal.SIGTERM, timeout=5)
            raise KeyboardInterrupt from None
        finally:
            context.close(signal.SIGKILL, timeout=5)
        if result is not None and result.is_failed():
            raise RunFailed(*_first_cause(result.failures, scratch, size))


def start_method(device: str) -> str:
    return "spawn" if sys.platform != "linux" or (device != "cpu" and torch.cuda.is_available()) else "fork"


def _worker(run_dir: str, launcher: int) -> None:
    """The entry of a forked worker: end with the launcher, and speak only through the error file."""
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        worker.main(run_dir)
    except Exception:
        # Told already, in the error file: a second copy on the terminal would bury it.
        sys.stderr.flush()
        os._exit(1)


def _first_cause(failures: dict, scratch: str, size: int) -> tuple[str, int]:
    """The message and exit code of the failure that brought the others about.

    A worker that loses a peer fails too; so a worker killed by a signal comes first, then the earliest that failed of
    itself, and one that lost a peer only if there is nothing else.
    """
    told = {}
    for rank in range(size):
        path = os.path.join(scratch, f"error-{rank}.json")
        if os.path.exists(path):
            message = json.load(open(path))["message"]
            info = message.get("extraInfo", {}) if isinstance(message, dict) else {}
            told[rank] = (info.get("py_callstack") or str(message), int(info.get("timestamp", 0)))

    def weight(failure) -> tuple[int, int]:
        text, when = told.get(failure.local_rank, ("", 0))
        by_signal = failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
        return (0 if by_signal else 2 if PeerLost.__name__ in text else 1, when)

    first = min(failures.values(), key=weight)
    others = [r for r in told if r != first.local_rank and PeerLost.__name__ not in told[r][0]]
    if first.exitcode < 0:
        name = signal.Signals(-first.exitcode).name
        hint = " (out of memory?)" if -first.exitcode == signal.SIGKILL else ""
        return f"worker {first.local_rank} was killed by {name}{hint}", 128 - first.exitcode
    text = told.get(first.local_rank, ("no traceback was left", 0))[0]
    also = f"\nworkers {others} failed of themselves too" if others else ""
    return f"worker {first.local_rank} failed:\n{text.rstrip()}{also}", 1


class _terminate_raises:
    """SIGTERM to the launcher acts like Ctrl-C for as long as this is open (main thread only)."""

    def __enter__(self):
        self.before = None
        if threading.current_thread() is threading.main_thread():
            def stop(number, _frame):
                raise SignalException(f"stopped by signal {number}", sigval=signal.Signals(number))

            self.before = signal.signal(signal.SIGTERM, stop)

    def __exit__(self, *_exc):
        if self.before is not None:
            signal.signal(signal.SIGTERM, self.before)
