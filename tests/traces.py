"""Synthetic run folders: epochs of known times and counts, written through the real writer."""

import hashlib
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.comm.recorder import Epoch, Span
from harness.results import files, reader, resolved, summary, writer
from harness.results.identity import canonical
from harness.results.schema import SCHEMA_VERSION

ENVIRONMENT = {
    "schema": SCHEMA_VERSION,
    "processor": "Test CPU",
    "cores": 4,
    "gpus": [],
    "revision": "abc1234",
    "packages": {},
}


_FINISHED = tempfile.TemporaryDirectory()  # for as long as the process lives


def scored(train: float, val: float, test: float, **more: float) -> dict[str, float]:
    """What an evaluation gives `TraceWriter.write`."""
    return {"train_acc": train, "val_acc": val, "test_acc": test, **more}


def epoch(
    number: int,
    *,
    worker: int = 0,
    begin: float = 100.0,
    segments: Sequence[tuple[str, str, float]] = (
        ("compute", "forward", 0.5),
        ("wait", "exchange", 0.2),
        ("rest", "pack", 0.1),
    ),
    flights: Sequence[tuple[float, float]] = ((0.1, 0.4),),
    sent: dict[tuple[int, str, str, int], tuple[int, int]] | None = None,
    transport_cpu: float = 0.05,
    metrics: dict[tuple[int, str], float] | None = None,
) -> Epoch:
    """An epoch of given segments (kind, name, seconds) one after another, and flights (start, end) relative
    to `begin`. A flight that ends at 0 has not completed."""
    made = Epoch(number)
    now = begin
    for kind, name, seconds in segments:
        cpu = 0.0 if kind == "wait" else seconds
        made.spans.append(
            Span(kind, name, 0, now, now + seconds, cpu=cpu, flops=30_000_000 if kind == "compute" else 0)
        )
        now += seconds
    made.train = now - begin
    made.cpu = sum(s.cpu for s in made.spans) + transport_cpu
    for i, (start, end) in enumerate(flights):
        made.spans.append(
            Span(
                "comm",
                "exchange",
                0,
                begin + start,
                begin + end if end else 0.0,
                bytes=64,
                peers=(1 - worker,),
                id=f"{number}:{i}",
            )
        )
    for key, (rows, size) in (sent or {(0, "forward", "halo", 1 - worker): (4, 64)}).items():
        made.sent[key] = [rows, size]
    made.metrics.update(metrics or {})
    return made


def write(
    folder: Path,
    epochs: Iterable[Epoch],
    *,
    worker: int = 0,
    loss: Any = 1.0,
    scores: Any = None,
    peak: int = 0,
) -> Path:
    """Write a worker's epochs; a list of losses, or of scores, has one for each."""
    out = writer.TraceWriter(folder, worker, 0)
    for number, made in enumerate(epochs):
        own, score = (each[number] if isinstance(each, list) else each for each in (loss, scores))
        out.write(made, loss=own, scores=score, peak_rss_bytes=peak)
    out.close()
    return folder


def close(folder: Path) -> Path:
    """What ends a run: its tables in one file each, and their summary."""
    writer.finalise(folder)
    files.write_json_atomic(folder / "summary.json", summary.summarise(folder))
    return folder


def sealed(folder: Path) -> Path:
    """The run with the checksums of its files in its summary, as one of this version leaves it."""
    found = {**files.read_json(folder / "summary.json"), "files": reader.checksums(folder)}
    files.write_json_atomic(folder / "summary.json", found)
    return folder


def unsummarised(folder: Path) -> Path:
    """The run without its summary, which has the checksums of its files and says that it has finished."""
    (folder / "summary.json").unlink()
    return folder


def config(**changes: Any) -> dict[str, Any]:
    """A composed config; `changes` are dotted keys with "__" for the dot."""
    made: dict[str, Any] = {
        "system": {"_target_": "somewhere.plain.Plain", "features": "refetch"},
        "dataset": {"name": "cora", "source": "real", "split": "own"},
        "partition": {"_target_": "harness.data.partition.assign.Metis", "seed": None},
        "model": {"name": "gcn", "layers": 2, "hidden": 64},
        "cluster": {"name": "measured", "matrix": None},
        "gpus": 2,
        "epochs": 5,
        "seed": 1,
        "label": None,
        "device": "cpu",
        "run_dir": None,
        "results": "results",
    }
    for key, value in changes.items():
        block, dot, last = key.partition("__")
        if dot:
            made.setdefault(block, {})[last] = value
        else:
            made[key] = value
    return made


FACTS = ("role", "steps", "asynchronous", "overlaps", "combine")  # what a system says of itself


def prepare(
    folder: Path,
    composed: dict[str, Any] | None = None,
    cores: int = 4,
    *,
    stats: dict[str, Any] | None = None,
    **ran_on: Any,
) -> Path:
    """A run folder before its first epoch; with `stats` of its partition, and with what it `ran_on` as one
    attempt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if stats is not None:
        files.write_json_atomic(folder / "shards.json", {"folder": "", "stats": stats, "graph": {}})
    if ran_on:
        facts = {name: ran_on.pop(name) for name in FACTS if name in ran_on}
        resolve(folder, 0, facts, **ran_on)
    files.write_json_atomic(folder / "environment.json", {**ENVIRONMENT, "cores": cores})
    files.write_yaml_atomic(folder / "config.yaml", yaml.safe_dump(composed or config()))
    return folder


def resolve(folder: Path, first_epoch: int, facts: dict[str, Any] | None = None, **ran_on: Any) -> None:
    """Note an attempt that begins at `first_epoch`."""
    attempt = {
        "device": "cpu",
        "threads": 1,
        "transport": "memory",
        "kernel": "numba",
        "machine": "Test CPU, 4 cores",
        "code": "c0de",
        **ran_on,
    }
    resolved.record(
        folder, first_epoch, attempt, {"role": "", "steps": 1, "asynchronous": False, **(facts or {})}
    )


def stream(
    folder: Path,
    epochs: range,
    *,
    workers: int = 2,
    attempt: int = 0,
    speed: float = 1.0,
    target: float = 0.8,
    size: int = 64,
    close: bool = True,
) -> list[writer.TraceWriter]:
    """Write `epochs` of every worker. Worker 1 computes 10 % longer; accuracy rises to `target` in the
    validation.
    """
    writers = [writer.TraceWriter(folder, k, attempt) for k in range(workers)]
    for number in epochs:
        accuracy = target * (1 - math.exp(-(number + 1) / 12)) + 0.006 * math.sin(2.3 * number)
        for k, out in enumerate(writers):
            begin, peer = 100.0 + number, (k + 1) % workers
            made = epoch(
                number,
                worker=k,
                begin=begin,
                segments=(
                    ("compute", "forward", speed * (0.3 + 0.03 * k)),
                    ("wait", "exchange", speed * 0.2),
                    ("rest", "pack", speed * 0.05),
                ),
                sent={
                    (0, "forward", "halo", peer): (4, size),
                    (1, "forward", "halo", peer): (4, 2 * size),
                    (-1, "backward", "weights", peer): (0, 10),
                },
            )
            out.write(
                made,
                loss=1 / (number + 1),
                scores=scored(accuracy + 0.02, accuracy + 0.01, accuracy),
                peak_rss_bytes=2**20 * (k + 1),
            )
    if close:
        for out in writers:
            out.close()
    return writers


# What the tables and the summary of a run follow from; the parquet files alone carry the whole config.
TRACED = ("dataset", "device", "epochs", "evaluate", "gpus", "score", "workers")


def once(folder: Path, composed: dict[str, Any], key: Any, make: Callable[[Path], Any]) -> Path:
    """A run folder that `make` writes. One that was made before of the same key, and of a config with the
    same keys that tables and summary follow from, is copied and has this config in its place."""
    key = [composed.get(name) for name in TRACED], key
    first = Path(_FINISHED.name) / hashlib.sha256(repr(key).encode()).hexdigest()
    if not first.exists():
        make(first)
    # With times of their own, as if made now.
    shutil.copytree(first, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
    files.write_yaml_atomic(folder / "config.yaml", yaml.safe_dump(composed))
    return folder


def finished(
    folder: Path,
    composed: dict[str, Any] | None = None,
    *,
    cores: int = 4,
    stats: dict[str, Any] | None = None,
    ran_on: dict[str, Any] | None = None,
    **measured: Any,
) -> Path:
    """A whole run folder, as a worker leaves it."""
    composed = composed or config()

    def make(first: Path) -> None:
        prepare(first, composed, cores, stats=stats, **(ran_on or {}))
        stream(first, range(composed["epochs"]), workers=canonical(composed)["workers"], **measured)
        close(first)

    return once(folder, composed, (cores, stats, ran_on, measured), make)


def of(folder: Path, system: str, *, module: str = "somewhere", **how: Any) -> Path:
    """`finished`, of a system by its name; a name of `finished` goes to it, any other to `config`."""
    given = ("cores", "stats", "ran_on", "speed", "target", "size")
    own = {name: how.pop(name) for name in given if name in how}
    return finished(folder, config(system___target_=f"{module}.{system}.S", **how), **own)


def measured(
    folder: Path,
    metrics: Sequence[dict[tuple[int, str], float]],
    composed: dict[str, Any],
    *others: Sequence[dict[tuple[int, str], float]],
    sent: Sequence[dict] | None = None,
) -> Path:
    """A whole run folder: worker 0's metrics {(layer, name): value}, one dict per epoch, then those of
    `others`; each sends these rows and bytes {(layer, direction, purpose, peer): (rows, bytes)}."""
    prepare(folder, composed)
    for worker, own in enumerate((metrics, *others)):
        made = [
            epoch(number, worker=worker, sent=sent[number] if sent else None, metrics=values)
            for number, values in enumerate(own)
        ]
        scores = [scored(0.5, 0.5, 0.01 * number) for number in range(len(made))]
        write(folder, made, worker=worker, loss=0.0, scores=scores)
    return close(folder)


def uneven(folder: Path, cores: int) -> Path:
    """A whole run folder of two workers and three epochs in which no two figures are alike: worker 0 waits,
    worker 1 computes.
    """
    prepare(folder, config(epochs=3), cores)
    scores = [
        scored(
            0.5,
            0.6 + 0.1 * (number == 1),
            0.37 + 0.01 * number,
            val_auc=0.6,
            test_auc=0.81 + 0.01 * number,
            val_balanced=0.5,
            test_balanced=0.22 + 0.01 * number,
        )
        for number in range(3)
    ]
    for k in range(2):
        epochs = []
        for number in range(3):
            more = 1 + 0.5 * number
            segments = (
                ("compute", "forward", more * (0.2 + 0.13 * k)),
                ("wait", "exchange", more * (0.41 - 0.3 * k)),
                ("rest", "pack", more * (0.03 + 0.01 * k)),
            )
            sent = {
                (0, "forward", "halo", 1 - k): (4, int(3e6 * more) + k),
                (1, "forward", "halo", 1 - k): (4, int(5e6 * more) + k),
                (-1, "backward", "weights", 1 - k): (0, int(7e5 * more) + k),
            }
            made = epoch(number, worker=k, segments=segments, sent=sent, transport_cpu=0.07 + 0.02 * k)
            made.spans[1].cpu = 0.015 * more  # a wait costs a little too
            made.cpu += made.spans[1].cpu
            epochs.append(made)
        write(folder, epochs, worker=k, loss=0.0, scores=scores)
    return close(folder)


def round_of(number: int, worker: int, update: int | None) -> Epoch:
    """A round of an asynchronous run: worker k computes 0.1 (k + 1) s, waits 0.05 s, and sends 10 bytes, 100
    in round 0.
    """
    segments = (("compute", "forward", 0.1 * (worker + 1)), ("wait", "update", 0.05))
    sent = {(-1, "backward", "gradient", -1): (0, 10 if number else 100)}
    made = epoch(number, worker=worker, segments=segments, flights=(), sent=sent, transport_cpu=0.0)
    if update is not None:
        made.metrics[-1, "update"] = update
    return made


def apart(
    folder: Path,
    order: Sequence[int],
    *,
    late: Sequence[int] = (),
    begin: Sequence[int] = (),
    attempt: int = 0,
    composed: dict[str, Any] | None = None,
) -> Path:
    """Streams of an asynchronous run: `order` names the worker of every update, as the server had them;
    workers in `late` made one more round, whose update came too late. An attempt that goes on after the
    updates `begin` writes only what came after them, and the epochs of the run that were not full then."""
    composed = composed or config()
    workers = canonical(composed)["workers"]
    rounds = [0] * workers
    prepare(folder, composed)
    own = [writer.TraceWriter(folder, k, attempt, list(begin).count(k)) for k in range(workers)]
    run = writer.TraceWriter(folder, -1, attempt, len(begin) // workers)
    for number, k in enumerate([*begin, *order]):
        if number >= len(begin):
            own[k].write(round_of(rounds[k], k, number), loss=1.0, scores=None, peak_rss_bytes=2**20)
        rounds[k] += 1
    for k in late:
        own[k].write(round_of(rounds[k], k, None), loss=1.0, scores=None, peak_rss_bytes=2**20)
    for number in range(len(begin) // workers, (len(begin) + len(order)) // workers):
        scores = scored(0.5, 0.1 * number, 0.01 * number)
        run.write(Epoch(number), loss=1 / (number + 1), scores=scores, peak_rss_bytes=0)
    for out in (*own, run):
        out.close()
    return folder
