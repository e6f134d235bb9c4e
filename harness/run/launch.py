"""The one launch path on one host: fork a worker for each rank and watch them.

The launcher has torch imported and has run nothing in parallel, so a forked worker starts at once instead of
importing everything again. With CUDA workers are spawned, since a CUDA context does not survive a fork.
torch's elastic process layer is not used: its queues need named semaphores, which need room in /dev/shm."""

import json
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from harness.base.errors import InputError, writing
from harness.base.loading import load
from harness.base.machine import LimitReached, memory_bytes
from harness.base.scratch import scratch
from harness.base.target import ALLOW, trusted_in
from harness.comm.service import ServiceLost
from harness.comm.transport import PeerLost
from harness.core.architectures import Gcn
from harness.results import files
from harness.run import silence, train
from harness.run.config import Run
from harness.run.process import RunFailed, be_child, forking, killed

END = 5.0  # seconds that the launcher waits for a killed worker to be gone
PATIENCE = 20.0  # seconds that a worker which lost a peer waits for the launcher to notice that peer
BAD_INPUT = 2  # exit code of a worker that refused its input
SERVICE_LOST = 3  # of a worker that lost a store or a server, or found no more memory, files or threads


def launch(run: Run, run_dir: Path) -> None:
    """Train `run` in the prepared `run_dir` and return when every worker has finished.

    Raises RunFailed within seconds of a worker's death. Raises InputError where the model does not fit into
    memory, or a worker refuses its input. However this ends, even by Ctrl-C, all
    workers are gone by then, and what they traced so far stays readable."""
    size = run.settings.workers
    _check_memory(run, files.read_json(run_dir / "shards.json")["stats"]["vertices"])
    with scratch() as folder:
        meeting = str(folder / "meeting")
        method = start_method(run.settings.device)
        # A forked worker has the run that was checked here; another process reads it from its folder.
        known = run if method == "fork" else None
        with writing(folder, "set TMPDIR to a folder on a disk with room"):
            beats = silence.Heartbeats(folder / silence.FILE, size)
        context: Any = multiprocessing.get_context(method)
        common = (str(run_dir), meeting, os.getpid(), known)
        processes: list[BaseProcess] = [
            context.Process(target=_worker, args=(_environment(run, rank, folder), *common))
            for rank in range(size)
        ]
        try:
            with forking():
                # Loading this here saves every worker half a second. It stands inside `forking`, which holds
                # signals back: some libraries swallow a signal that arrives while they are imported.
                if known is not None:
                    load("harness.run.preload")
                for process in processes:
                    process.start()
            pids = {rank: process.pid or 0 for rank, process in enumerate(processes)}
            with silence.watched(silence.Silence(beats, pids)):
                failed = _first_failed(processes)
        finally:
            for process in processes:
                if process.pid is not None:
                    process.kill()
                    process.join(END)
            Console(stderr=True).show_cursor()  # the progress bar of a worker that was killed had hidden it
        if failed is not None:
            raise _failure(failed, processes[failed].exitcode or 0, _errors(folder, failed))


def _environment(run: Run, rank: int, folder: Path) -> dict[str, str]:
    """The variables that a worker's environment has beside the launcher's."""
    size = str(run.settings.workers)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "TORCHELASTIC_ERROR_FILE": str(_errors(folder, rank)),
        ALLOW: trusted_in(run.composed),
    }


def _errors(folder: Path, rank: int) -> Path:
    """The file in which torch's `record` tells why a worker failed."""
    return folder / f"error-{rank}.json"


def _first_failed(processes: Sequence[BaseProcess]) -> int | None:
    """The worker that failed first; None where all have finished."""
    left = {process.sentinel: rank for rank, process in enumerate(processes)}
    while left:
        for sentinel in connection.wait(list(left)):
            assert isinstance(sentinel, int)
            rank = left.pop(sentinel)
            processes[rank].join()
            if processes[rank].exitcode:
                return rank
    return None


def _check_memory(run: Run, vertices: int) -> None:
    """InputError where this machine's memory cannot hold even the hidden rows of one layer (all workers) and
    each worker's weights between hidden layers; a run takes more than that. Only models derived from `Gcn`,
    as all of the tree's are, are checked, and only on the CPU."""
    model, memory = run.model, memory_bytes()
    if not isinstance(model, Gcn) or start_method(run.settings.device) != "fork":
        return
    weights = model.hidden * max(model.layers - 2, 0) * run.settings.workers
    least = 4 * model.hidden * (vertices + weights)
    if least > memory:
        raise InputError(
            f"model.hidden={model.hidden} and model.layers={model.layers} take over {least / 1e9:.0f} GB,"
            f" and this machine has {memory / 1e9:.0f} GB; give a smaller model.hidden"
        )


def start_method(device: str) -> str:
    """How multiprocessing starts workers: "spawn" where they may use CUDA, else "fork"."""
    return "spawn" if device != "cpu" and torch.cuda.is_available() else "fork"


def _worker(
    environment: Mapping[str, str], run_dir: str, meeting: str, launcher: int, known: Run | None
) -> None:
    """A worker's process. It ends when the launcher ends; only torch's error file says why it failed.

    A failed worker prints nothing: the launcher prints its traceback, and a second copy would bury the first.
    """
    os.environ.update(environment)
    be_child(launcher)
    try:
        train.main(run_dir, meeting, known)
    except PeerLost:
        # Some other worker is to blame. The launcher ends this one as soon as it sees which.
        time.sleep(PATIENCE)
        os._exit(1)
    except InputError:
        os._exit(BAD_INPUT)
    except (ServiceLost, LimitReached):
        os._exit(SERVICE_LOST)
    except Exception:
        os._exit(1)


def _failure(rank: int, code: int, errors: Path) -> Exception:
    """The error to raise for a worker that failed: its exit code, and the file in which it told why."""
    mend = "; the same command goes on from the last checkpoint"
    if code < 0:
        shown = f"{mend}; with PYTHONFAULTHANDLER=1 it shows where"
        return killed(f"worker {rank}", code, f" (out of memory?){mend}", shown)
    try:
        told = json.loads(errors.read_text())["message"]
    except (OSError, ValueError, KeyError):
        # The C library ends a process with 127 where it cannot allocate what a thread needs.
        why = "for want of memory" if code == 127 else "and no word of why"
        return RunFailed(f"worker {rank} ended with exit code {code} {why}{mend}", code)
    if code == BAD_INPUT:
        return InputError(told["message"].partition(": ")[2])
    if code in (SERVICE_LOST, train.STALLED):
        return RunFailed(told["message"].partition(": ")[2])
    return RunFailed(f"worker {rank} failed:\n{told['extraInfo']['py_callstack'].rstrip()}")
