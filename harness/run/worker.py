"""One worker of a run: `python -m harness.worker RUN_DIR` under torchrun, or forked by the local launcher.

It reads the run folder and its own shard, trains, and writes its own part of the trace.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import record

from harness.check import InputError
from harness.check.target import check_trusted
from harness.comm.comm import Comm
from harness.comm.group import process_group
from harness.comm.recorder import Epoch, Recorder, cpu_count
from harness.comm.transport import Transport
from harness.core.checkpoint import Checkpoints
from harness.core.kernels import make_kernel
from harness.core.order import FIXED, Costs, Order
from harness.core.tiling import Tilings
from harness.core.trainer import Trainer
from harness.partition import io
from harness.partition.cache import check_file
from harness.run import config as configs
from harness.run import silence
from harness.run.devices import cluster_of
from harness.run.process import keep_freed_memory
from harness.run.progress import Progress
from harness.run.silence import Beats
from harness.trace import files, resolved, writer
from harness.trace.asynchronous import AsynchronousTrace
from harness.trace.environment import environment
from harness.trace.reader import Trace, bytes_sent, check_streams, checksums
from harness.trace.schema import NOT_FINITE


@record
def main(run_dir: str, meeting: str | None = None) -> None:
    """Join the group that RANK and WORLD_SIZE describe and train the run in `run_dir`.

    meeting   file in which the workers of one host meet; None: where torchrun's environment says

    Raises InputError where the run folder or the shard is missing or damaged, or the number of workers is
    another.
    """
    run = held(configs.load(Path(run_dir)), Path(run_dir))
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if size != run.settings.workers:
        raise InputError(
            f"workers={run.settings.workers} in {run_dir}/config.yaml but {size} workers were started;"
            " start as many as workers says"
        )
    if rank == 0 and meeting is None:  # prepared by another process, perhaps elsewhere and some time ago
        here = {**environment(), "code": run.code}
        files.write_json_atomic(Path(run_dir) / "environment.json", here)
    device = choose_device(run.settings.device)
    with process_group(rank, size, device, meeting, run.settings.transport) as transport:
        train(run, Path(run_dir), rank, size, device, transport, Path(meeting) if meeting else None)


def held(run: configs.Run, run_dir: Path) -> configs.Run:
    """The run with the values that it began with where it goes on from a checkpoint and was asked for `auto`:
    another device, kernel or number of threads would go on with other bits.

    Raises InputError where such a value is not to be had on this host.
    """
    found = _began(run_dir)
    if found is None:
        return run
    began = {name: found["attempts"][-1][name] for name in resolved.HELD}
    check_trusted({"kernel": began["kernel"]}, run_dir / resolved.FILE)
    try:
        check_device(began["device"])
        make_kernel(began["kernel"], began["device"])
    except InputError as error:
        raise InputError(
            f"{run_dir} goes on only with what it began with, for the same bits, but {error}; give fresh=true"
            " to start anew"
        ) from None
    return dataclasses.replace(run, settings=dataclasses.replace(run.settings, **began))


def _began(run_dir: Path) -> dict[str, Any] | None:
    """What the run was when it began; None where it has no checkpoint to go on from."""
    return resolved.read(run_dir) if (run_dir / "checkpoints" / "latest").exists() else None


def train(
    run: configs.Run,
    run_dir: Path,
    rank: int,
    size: int,
    device: torch.device,
    transport: Transport,
    meeting: Path | None,
) -> None:
    """The whole of a worker's work inside an open process group.

    meeting   file in which workers have met that the local launcher started, which has just read every shard
              and watches whether they move; None under another
    """
    began = _began(run_dir)
    if began is not None:
        before = began["attempts"][-1]["transport"]
        if not resolved.adds_alike(before, transport.name):
            raise InputError(
                f"{run_dir} goes on only with what it began with, for the same bits, but it began over"
                f" transport {before} and would go on over {transport.name}; give fresh=true to start anew"
            )
    beats = Beats(meeting.with_name(silence.FILE), size) if meeting else None
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    threads = run.settings.threads or max(1, cpu_count() // local)
    torch.set_num_threads(threads)
    keep_freed_memory()
    recorder = Recorder()
    comm = Comm(rank, size, device, recorder, transport, run.settings.wire)
    shards = configs.shard_folder(run_dir)
    if meeting is None:
        check_file(shards, io.shard_name(rank))
    shard = io.load(shards, rank)
    measured = configs.costs(run_dir)
    trainer = Trainer(
        shard,
        comm,
        run.system,
        run.model,
        run.optimiser,
        seed=run.settings.seed,
        epochs=run.settings.epochs,
        schedule=run.schedule,
        evaluate=run.evaluate,
        scores=run.scores,
        kernel=make_kernel(run.settings.kernel, device, Tilings.of_json(configs.tilings(run_dir))),
        cluster=cluster_of(run, run_dir, comm),
        order=Order(run.settings.order, Costs.of_json(measured) if measured else FIXED),
    )
    # By what its checkpoints know it: its fingerprint when it began, whatever that has become since.
    name = (began or {}).get("run") or run.fingerprint
    earlier = writer.attempts(run_dir) if rank == 0 else 0
    checkpoints = Checkpoints(run_dir / "checkpoints", rank, comm, name, earlier)
    met = checkpoints.restore(trainer)  # epochs of the run that were over when the workers met last
    if rank == 0:
        check_streams(run_dir)
        machine = Trace(run_dir).environment
        attempt = {
            "device": device.type,
            "threads": threads,
            "transport": comm.carrier,
            "kernel": trainer.kernel.name,
            "tilings": trainer.kernel.tilings.as_json(),
            "costs": measured,
            "machine": resolved.machine(machine),
            "code": machine.get("code"),
        }
        facts = {
            "role": run.system.role,
            "steps": run.system.steps(),
            "asynchronous": run.system.asynchronous,
            "run": name,
        }
        resolved.record(run_dir, met, attempt, facts)
    own = writer.TraceWriter(run_dir, rank, checkpoints.attempt, trainer.next_epoch)
    rounds = (
        AsynchronousTrace(run_dir, own, comm, checkpoints.attempt, met, trainer.train_share)
        if run.system.asynchronous
        else None
    )
    trace = own if rounds is None else rounds
    last = run.settings.epochs - 1
    every, saved_every = run.evaluate.every, run.settings.checkpoint_every
    with Progress(run, enabled=rank == 0) as progress, contextlib.closing(trace):
        if met and rank == 0:
            progress.resumed(met, bytes_sent(run_dir, rank, trainer.next_epoch))
        saving, diverged, ended = 0.0, False, False
        waiting: list[tuple[Epoch, torch.Tensor]] = []  # trained, and not yet written
        while met <= last:
            if beats:
                beats.begin(rank, trainer.next_epoch)
            loss_share = trainer.train_epoch(trainer.next_epoch)
            recorder.epoch.log += saving  # of the checkpoint before this epoch
            saving = 0.0
            waiting.append((recorder.epoch, loss_share))
            done = run.system.epochs_done(recorder.epoch.epoch)
            due = bool(saved_every) and done // saved_every > met // saved_every and done <= last
            finished: Sequence[tuple[Epoch, torch.Tensor | float | None]] = waiting
            if rounds is not None:
                if not due and done <= last:
                    continue  # evaluation and logging are collective: the workers would wait for each other
                progress.sent(epoch for epoch, _ in waiting)
                finished = rounds.epochs(waiting, met, done, peak_rss())
            for recorder.epoch, local_loss in finished:
                number = recorder.epoch.epoch
                with recorder.clock("log"):
                    loss = trainer.global_loss(local_loss) if local_loss is not None else None
                broken = loss is not None and not math.isfinite(loss)
                scores = None
                if not broken and (number == last or (every and number % every == 0)):
                    scores = trainer.evaluate()
                    if scores.not_finite:
                        recorder.metric(NOT_FINITE, scores.not_finite)
                    for name, value in scores.named().items() if rank == 0 else ():
                        recorder.metric(name, value)
                    ended = trainer.ends_early(scores)
                # On all workers alike: both are sums over all of them.
                diverged = diverged or broken or (scores is not None and scores.not_finite > 0)
                trace.write(
                    recorder.epoch,
                    loss=loss,
                    scores=scores.columns() if scores else None,
                    peak_rss_bytes=peak_rss(),
                )
                progress.epoch(recorder.epoch, loss, scores)
            waiting, met = [], done
            if ended or (diverged and run.settings.diverged == "stop"):
                break
            # After the trace: a run goes on from a checkpoint only if every epoch before it was traced.
            if due:
                started = time.monotonic()
                checkpoints.save(trainer, done)
                saving = time.monotonic() - started
        if beats:
            beats.end(rank)
        if run.settings.keep_checkpoint and not diverged:
            checkpoints.save(trainer, met)
        trainer.system.close()
        comm.drain()
    comm.barrier()
    if rank == 0:
        from harness.trace import (
            summary,  # pandas: half a second that no start has to wait for
        )

        writer.finalise(run_dir)
        whole = {**summary.summarise(run_dir), "files": checksums(run_dir)}
        files.write_json_atomic(run_dir / "summary.json", whole)
        if not run.settings.keep_checkpoint or diverged:
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
