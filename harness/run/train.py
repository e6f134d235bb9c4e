"""One worker of a run: `python -m harness.run.worker RUN_DIR` under torchrun, or forked by the launcher.

It reads the run folder and its own shard, trains, and writes its own part of the trace."""

import contextlib
import dataclasses
import faulthandler
import math
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import get_error_handler, record

from harness.base.compiling import before_compiling, take_turns
from harness.base.errors import InputError, first_line
from harness.base.heap import keep_freed_memory
from harness.base.machine import LimitReached, limit_reached
from harness.base.target import check_trusted
from harness.base.terminal import counted, printable
from harness.comm.comm import Comm
from harness.comm.group import process_group
from harness.comm.meeting import RENDEZVOUS, Meeting
from harness.comm.members import WorkerPlace, host_name, myself, seated, workers
from harness.comm.recorder import Epoch, Recorder, cpu_count
from harness.comm.service import ServiceLost
from harness.comm.transport import PeerLost, Transport
from harness.comm.watch import Watch, meeting_in_time
from harness.core.checkpoint import Checkpoints
from harness.core.kernels.spmm import make_kernel
from harness.core.kernels.tiling import Tilings
from harness.core.mixins import AsynchronousSystem
from harness.core.order import FIXED, Costs, Order
from harness.core.trainer import Trainer
from harness.data.partition import io
from harness.data.partition.cache import check_file
from harness.results import files, resolved, writer
from harness.results.asynchronous import AsynchronousTrace
from harness.results.environment import environment, of_hosts
from harness.results.reader import Trace, bytes_sent, check_streams, checksums
from harness.results.schema import NOT_FINITE, PEAK_ALLOCATED, PEAK_RESERVED
from harness.run import config as configs
from harness.run import secret, separate_hosts, silence
from harness.run.devices import cluster_of
from harness.run.prepare import locked
from harness.run.process import RunFailed
from harness.run.progress import COMPILING, Progress, say
from harness.run.silence import Heartbeats

STALLED = 4  # exit code of a worker that ended itself: no worker made progress, or another had failed


def _numbered(name: str, usual: int) -> int:
    """A number that a launcher sets in the environment; `usual` where it is not set."""
    given = os.environ.get(name, str(usual))
    if not given.isdecimal():
        raise InputError(f"{name}={given} in the environment is not a number: start workers by torchrun")
    return int(given)


@record
def main(run_dir: str, meeting: str | None = None, known: configs.Run | None = None) -> None:
    """Join the group that RANK and WORLD_SIZE describe and train the run in `run_dir`.

    meeting   file in which the workers of one host meet, where the launcher on that host started them; None:
              they meet where torchrun's environment says
    known     the run that `run_dir` was prepared for, where the process that started this worker has it;
              None: it is read from `run_dir`

    Raises InputError, on all workers, where one of them cannot take part: the run folder or a shard is
    missing or damaged, a device is not there, or another number of workers was started. Raises PeerLost where
    another worker went away, with that worker's error where it told one."""
    if "PYTHONFAULTHANDLER" not in os.environ:
        faulthandler.disable()  # `record` has turned it on; who waits for this worker says what ended it
    take_turns()
    rank, size = _numbered("RANK", 0), _numbered("WORLD_SIZE", 1)
    folder, recorder = Path(run_dir), Recorder()
    found = known
    if found is None:
        with contextlib.suppress(InputError):  # raised again below, where the others can be told
            found = configs.load(folder)
    key = secret.read(folder) if meeting is None and size > 1 else b""
    met = Meeting(rank, size, meeting, found.settings.rendezvous if found else RENDEZVOUS, key)
    try:
        with contextlib.ExitStack() as stack:
            sees, wrong, run = [True] * size, "", None
            if meeting is None:
                sees, wrong = separate_hosts.describe(met, host_name(), folder)
            try:
                # Before `describe`, a worker on another host may have had another run's folder.
                run = held(found if found and meeting else configs.load(folder), folder)
                if meeting is None:
                    _check_start(run, folder, rank, size, sees[rank])
                    if rank == 0:
                        stack.enter_context(locked(folder))
            except InputError as error:
                wrong = wrong or str(error)
            device = run.settings.device if run is not None else "cpu"
            # All workers hear what is wrong with any, and raise InputError alike; else each gets its place.
            seat = seated(met.members(myself(device, wrong)), rank, device)
            assert run is not None, "who has none has said what is wrong"
            if meeting is None:
                _say_where(met, run, folder, seat)
            if seat.note and rank == 0:
                print(f"note: {seat.note}", file=sys.stderr)
            if seat.device.type == "cuda":
                torch.cuda.set_device(seat.device)
            with meeting_in_time(met, _ends(met)):
                stack.enter_context(Watch(met, lambda: recorder.epoch, run.settings.patience, _ends(met)))
                transport = stack.enter_context(process_group(met, seat, run.settings.transport))
            if rank == 0:
                stack.enter_context(before_compiling(partial(say, run, COMPILING)))
            beats = Heartbeats(Path(meeting).with_name(silence.FILE), size) if meeting else None
            train(run, folder, seat, transport, recorder, sees, beats)
    except PeerLost as error:
        raise PeerLost(met.failure() or str(error)) from error
    except Exception as error:
        limit = limit_reached(error)
        kind = "" if limit or isinstance(error, InputError | ServiceLost) else f"{type(error).__name__}: "
        met.fail(f"{kind}{limit or first_line(error)}")
        if limit:
            raise LimitReached(f"worker {rank}: {limit}") from error
        raise


def _check_start(run: configs.Run, run_dir: Path, rank: int, size: int, sees: bool) -> None:
    """InputError where torchrun started another number of workers than the run has, or this worker's shard is
    not what was written. sees: whether this worker sees worker 0's run folder."""
    if size != run.settings.workers:
        raise InputError(
            f"workers={run.settings.workers} in {run_dir}/config.yaml but {counted(size, 'worker')} started;"
            " start as many as workers says"
        )
    if sees:  # else its shard is still to come
        check_file(configs.shard_folder(run_dir), io.shard_name(rank))


def _say_where(met: Meeting, run: configs.Run, run_dir: Path, seat: WorkerPlace) -> None:
    """Write environment.json with what every host is, and print where the workers stand. Collective."""
    own = {**environment(), "code": run.code} if seat.rank == seat.neighbours[0] else None
    hosts = [found for found in met.tell("environment", own) if found is not None]
    if seat.rank != 0:
        return
    files.write_json_atomic(run_dir / "environment.json", of_hosts(hosts, seat.hosts))
    for ranks, found in zip(seat.hosts[1:], hosts[1:]):
        if found["code"] != hosts[0]["code"]:
            note = f"the host of {workers(ranks)} has code {found['code']}, that of worker 0"
            print(printable(f"note: {note} {hosts[0]['code']}"), file=sys.stderr)
    if run.settings.progress != "false":
        counts = " + ".join(str(len(ranks)) for ranks in seat.hosts)
        print(
            f"{run_dir}: {counted(seat.size, 'worker')} on {counted(len(seat.hosts), 'host')} ({counts}), on"
            f" {seat.device.type}",
            file=sys.stderr,
        )


def _ends(met: Meeting) -> Callable[[str], None]:
    """What ends this process from a thread beside its training, and leaves a sentence for its parent."""

    def end(sentence: str) -> None:
        get_error_handler().record_exception(RunFailed(sentence))
        if met.under_launcher:
            print(f"error: {sentence}", file=sys.stderr, flush=True)
        os._exit(STALLED)

    return end


def held(run: configs.Run, run_dir: Path) -> configs.Run:
    """The run; where it goes on from a checkpoint, with the device, kernel and number of threads that it had
    then, whatever `auto` would choose now: others would give other bits.

    Raises InputError where this host does not have one of them."""
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
    """The content of resolved.json; None where the run has no checkpoint to go on from."""
    return resolved.read(run_dir) if (run_dir / "checkpoints" / "latest").exists() else None


def train(
    run: configs.Run,
    run_dir: Path,
    seat: WorkerPlace,
    transport: Transport,
    recorder: Recorder,
    sees: Sequence[bool] = (),
    beats: Heartbeats | None = None,
) -> None:
    """The whole of a worker's work inside an open process group.

    sees    which workers see the run folder of worker 0, by rank; empty: all do
    beats   where the worker notes which epoch it begins, for a launcher on this host that watches whether
            workers move; None: nobody watches
    """
    # A run that goes on must add in the same order as before, or its bits would differ.
    began = _began(run_dir)
    if began is not None:
        before = began["attempts"][-1]["transport"]
        if not resolved.adds_alike(before, transport.name):
            raise InputError(
                f"{run_dir} goes on only with what it began with, for the same bits, but it began over"
                f" transport {before} and would go on over {transport.name}; start the run anew with"
                " fresh=true"
            )
    # Build the trainer from this worker's shard, which worker 0 sends first where hosts share no folder.
    rank, size, device = seat.rank, seat.size, seat.device
    threads = run.settings.threads or max(1, cpu_count() // len(seat.neighbours))
    torch.set_num_threads(threads)
    keep_freed_memory()
    comm = Comm(rank, size, device, recorder, transport, run.settings.wire)
    apart = not all(sees)
    if apart:
        separate_hosts.bring_shards(comm, run_dir, sees)
    shard = io.load(configs.shard_folder(run_dir), rank)
    measured = configs.measured(run_dir)
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
        kernel=make_kernel(run.settings.kernel, device, Tilings.of_json(measured["tilings"])),
        cluster=cluster_of(run, run_dir, comm, seat),
        order=Order(run.settings.order, Costs.of_json(measured["costs"]) if measured["costs"] else FIXED),
        rows=run.settings.rows,
        combine=run.combine,
        features_wire=run.settings.features_wire,
        straggler=run.straggler,
        labels=run.labels,
    )
    # Restore the latest checkpoint. Checkpoints name the run by the fingerprint that it had when it began,
    # since later versions of this program may compute another one.
    name = (began or {}).get("run") or run.fingerprint
    earlier = writer.attempts(run_dir) if rank == 0 else 0
    # Of the workers that see one folder, the first removes what is no longer needed from it.
    keeper = rank == (0 if not apart or sees[rank] else next(k for k in seat.neighbours if not sees[k]))
    checkpoints = Checkpoints(run_dir / "checkpoints", rank, comm, name, earlier, keeper)
    met = checkpoints.restore(trainer)  # how many epochs of the run were over when the workers last met
    if rank == 0:
        check_streams(run_dir, checkpoints.attempt)
        machine = Trace(run_dir).environment
        attempt = {
            "device": device.type,
            "threads": threads,
            "transport": comm.transport.name,
            "kernel": trainer.kernel.name,
            "tilings": trainer.kernel.tilings.as_json(),
            "costs": measured["costs"],
            "machine": resolved.machine(machine),
            "code": machine.get("code"),
        }
        facts = {**run.facts, "steps": trainer.steps, "knobs": trainer.chosen, "run": name}
        resolved.record(run_dir, met, attempt, facts)
    # Each worker opens its streams; in an asynchronous run worker 0 also those of the run's epochs.
    own = writer.TraceWriter(run_dir, rank, checkpoints.attempt, trainer.next_epoch)
    rounds = (
        AsynchronousTrace(run_dir, own, comm, checkpoints.attempt, met, trainer.train_share)
        if isinstance(run.system, AsynchronousSystem)
        else None
    )
    trace = own if rounds is None else rounds
    last = run.settings.epochs - 1
    every, saved_every = run.evaluate.every, run.settings.checkpoint_every

    def scored(number: int) -> bool:
        return number == last or bool(every and number % every == 0)

    with Progress(run, enabled=rank == 0) as progress, contextlib.closing(trace):
        if met and rank == 0:
            progress.resumed(met, bytes_sent(run_dir, rank, trainer.next_epoch))
        saving, diverged, ended = 0.0, False, trainer.stopping.ended
        # Epochs that are trained and not yet written, with their losses; `shares`: asynchronous rounds.
        pending: list[tuple[Epoch, Callable[[], float] | None]] = []
        shares: list[tuple[Epoch, torch.Tensor]] = []
        while met <= last and not ended:
            if beats:
                beats.begin(rank, trainer.next_epoch)
            loss_share = trainer.train_epoch(trainer.next_epoch)
            if device.type == "cuda":
                recorder.metric(PEAK_ALLOCATED, torch.cuda.max_memory_allocated(device))
                recorder.metric(PEAK_RESERVED, torch.cuda.max_memory_reserved(device))
            recorder.epoch.log += saving  # of the checkpoint before this epoch
            saving = 0.0
            done = recorder.epoch.epoch + 1
            if isinstance(run.system, AsynchronousSystem):
                done = run.system.epochs_done(recorder.epoch.epoch)
            # Which epochs can be written: those whose loss is known. A synchronous run waits for it where its
            # workers meet anyway, else an epoch later; an asynchronous run only where its workers meet.
            due = bool(saved_every) and done // saved_every > met // saved_every and done <= last
            finished: list[tuple[Epoch, Callable[[], float] | None]]
            if rounds is None:
                # Over sockets the sum of the loss queues behind rows under way. Waiting for it at once would
                # let rows arrive outside the clock that the system need not wait for yet.
                with recorder.clock("log"):
                    pending.append((recorder.epoch, trainer.start_global_loss(loss_share)))
                meet = due or scored(recorder.epoch.epoch)
                finished, pending = (pending, []) if meet else (pending[:-1], pending[-1:])
            else:
                shares.append((recorder.epoch, loss_share))
                if not due and done <= last:
                    continue  # evaluation and logging are collective: the workers would wait for each other
                progress.sent(epoch for epoch, _ in shares)
                finished = [
                    (epoch, partial(trainer.global_loss, share) if share is not None else None)
                    for epoch, share in rounds.epochs(shares, met, done, peak_rss())
                ]
                shares = []
            for recorder.epoch, global_loss in finished:
                with recorder.clock("log"):
                    loss = global_loss() if global_loss is not None else None
                broken = loss is not None and not math.isfinite(loss)
                scores = None
                if not broken and scored(recorder.epoch.epoch):
                    scores = trainer.evaluate()
                    if scores.not_finite:
                        recorder.metric(NOT_FINITE, scores.not_finite)
                    for name, value in scores.named().items() if rank == 0 else ():
                        recorder.metric(name, value)
                    if every and recorder.epoch.epoch % every == 0:  # not the last epoch's own
                        ended = trainer.ends_early(scores)
                # All workers decide alike, since both values are sums over all of them.
                diverged = diverged or broken or (scores is not None and scores.not_finite > 0)
                trace.write(
                    recorder.epoch,
                    loss=loss,
                    scores=scores.columns() if scores else None,
                    peak_rss_bytes=peak_rss(),
                )
                progress.epoch(recorder.epoch, loss, scores)
                if diverged and run.settings.diverged == "stop":
                    break  # epochs that were trained after it are not written
            met = done
            if ended or (diverged and run.settings.diverged == "stop"):
                break
            # After the trace: a run goes on from a checkpoint only if every epoch before it was traced.
            if due:
                started = time.monotonic()
                checkpoints.save(trainer, done, trace.settle)
                saving = time.monotonic() - started
        if beats:
            beats.end(rank)
        if run.settings.keep_checkpoint and not diverged:
            checkpoints.save(trainer, met, trace.settle)
        trainer.closing.close()
        comm.drain()
    comm.barrier()
    # Worker 0 gets the traces from the other hosts, merges all, and writes the summary, which marks the run
    # as finished. Then each folder is cleared of what is no longer needed.
    if apart:
        separate_hosts.take_back(comm, run_dir, sees, seat.hosts)
    if rank == 0:
        from harness.results import summary  # pandas: half a second that no start has to wait for

        writer.finalise(run_dir)
        whole = {**summary.summarise(run_dir), "files": checksums(run_dir)}
        files.write_json_atomic(run_dir / "summary.json", whole)
        secret.forget(run_dir)
    keep = run.settings.keep_checkpoint and not diverged
    if keeper and not keep:
        checkpoints.clear()
    if keeper and rank != 0:
        separate_hosts.forget(run_dir, keep)


def check_device(name: str) -> None:
    """Raises InputError for a device ("auto", "cpu" or "cuda") that this host does not have."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device=cuda but no CUDA device is visible; give device=cpu")


def peak_rss() -> int:
    """Bytes of this process's largest resident set."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
