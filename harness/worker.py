"""One worker of a run: `python -m harness.worker RUN_DIR` under torchrun, or forked by the local launcher.

It reads the run folder and its own shard, trains, and writes its own part of the trace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from harness import config as configs
from harness.check import InputError
from harness.comm.comm import Comm
from harness.comm.group import process_group
from harness.comm.recorder import Recorder, cpu_count
from harness.comm.service import ServiceLost
from harness.comm.transport import Transport
from harness.core.checkpoint import Checkpoints
from harness.core.trainer import Trainer
from harness.devices import cluster_of
from harness.partition import io
from harness.progress import Progress
from harness.trace import writer


@record
def main(run_dir: str, meeting: str | None = None) -> None:
    """Join the group that RANK and WORLD_SIZE describe and train the run in `run_dir`.

    meeting   file in which the workers of one host meet; None: where torchrun's environment says

    Raises InputError where the run folder or the shard is missing or damaged, or the number of workers is another.
    """
    run = configs.load(Path(run_dir))
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size != run.settings.gpus:
        raise InputError(f"gpus={run.settings.gpus} in {run_dir}/config.yaml but {size} workers were started; start as many as gpus says")
    device = choose_device(run.settings.device)
    with process_group(rank, size, device, meeting, run.settings.transport) as transport:
        train(run, Path(run_dir), rank, size, device, transport)


def train(run: configs.Run, run_dir: Path, rank: int, size: int, device: torch.device, transport: Transport | None) -> None:
    """The whole of a worker's work inside an open process group."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    torch.set_num_threads(run.settings.threads or max(1, cpu_count() // local))
    keep_freed_memory()
    recorder = Recorder()
    comm = Comm(rank, size, device, recorder, transport)
    shard = io.load(configs.shard_folder(run_dir), rank)
    trainer = Trainer(shard, comm, run.system, run.model, run.optimiser, seed=run.settings.seed,
                      epochs=run.settings.epochs, kernel=run.settings.kernel,
                      cluster=cluster_of(run, run_dir, comm))
    checkpoints = Checkpoints(run_dir / "checkpoints", rank, comm)
    first = checkpoints.restore(trainer)
    trace = writer.TraceWriter(run_dir, rank, attempt=checkpoints.attempt)
    last = run.settings.epochs - 1
    every = run.evaluate.every
    with Progress(run, enabled=rank == 0) as progress, contextlib.closing(trace):
        saving, waiting = 0.0, []
        for epoch in range(first, run.settings.epochs):
            local_loss = trainer.train_epoch(epoch)
            recorder.epoch.log += saving  # of the checkpoint before this epoch
            saving = 0.0
            waiting.append((recorder.epoch, local_loss))
            due = bool(run.settings.checkpoint_every) and (epoch + 1) % run.settings.checkpoint_every == 0 and epoch != last
            if run.system.asynchronous and not due and epoch != last:
                continue  # evaluation and logging are collective, and would make the workers wait for each other
            for recorder.epoch, local_loss in waiting:
                number = recorder.epoch.epoch
                accuracy = trainer.evaluate() if number == last or (every and number % every == 0) else None
                with recorder.clock("log"):
                    loss = trainer.global_loss(local_loss)
                trace.write(recorder.epoch, loss=loss, accuracy=accuracy, peak_rss_bytes=peak_rss())
                progress.epoch(recorder.epoch, loss, accuracy)
            waiting = []
            # After the trace: a run goes on from a checkpoint only if every epoch before it was traced.
            if due:
                started = time.monotonic()
                checkpoints.save(trainer, epoch + 1)
                saving = time.monotonic() - started
        trainer.system.close()
        comm.drain()
    comm.barrier()
    if rank == 0:
        from harness.trace import summary  # pandas: half a second that no start has to wait for

        writer.finalise(run_dir)
        writer.write_json_atomic(run_dir / "summary.json", summary.summarise(run_dir))
        checkpoints.clear()


def check_device(name: str) -> None:
    """Raises InputError for a device that this host has not."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda but no CUDA device is visible; give device=cpu")


def choose_device(name: str) -> torch.device:
    check_device(name)
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def peak_rss() -> int:
    """Bytes of this process's largest resident set."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: handing large tensors back to the system after each use and faulting them in again costs
    more than the products that fill them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
            libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
            libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: torchrun --nproc-per-node WORKERS -m harness.worker RUN_DIR")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C is torchrun's to report: no traceback from every worker
    try:
        main(sys.argv[1])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except ServiceLost as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
