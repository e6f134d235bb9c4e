"""Synthetic run folders: epochs of known times and counts, written through the real writer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from harness.comm.recorder import Epoch, Span
from harness.trace import summary, writer

ENVIRONMENT = {"schema": 1, "processor": "Test CPU", "cores": 4, "gpus": [], "revision": "abc1234", "packages": {}}


def epoch(
    number: int,
    *,
    worker: int = 0,
    begin: float = 100.0,
    segments: Sequence[tuple[str, str, float]] = (
        ("compute", "forward", 0.5),
        ("wait", "exchange", 0.2),
        ("other", "pack", 0.1),
    ),
    flights: Sequence[tuple[float, float]] = ((0.1, 0.4),),
    sent: dict[tuple[int, str, str, int], tuple[int, int]] | None = None,
    transport_cpu: float = 0.05,
) -> Epoch:
    """An epoch of given segments (kind, name, seconds) one after another, and flights (start, end) relative to `begin`.
    A flight that ends at 0 has not completed."""
    made = Epoch(number)
    now = begin
    for kind, name, seconds in segments:
        cpu = 0.0 if kind == "wait" else seconds
        made.spans.append(Span(kind, name, 0, now, now + seconds, cpu=cpu, flops=1000 if kind == "compute" else 0))
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
    return made


def config(**changes: Any) -> dict[str, Any]:
    """A composed config; `changes` are dotted keys with "__" for the dot."""
    made: dict[str, Any] = {
        "system": {"_target_": "somewhere.plain.Plain", "features": "refetch"},
        "dataset": {"name": "cora", "source": "real", "split": "own"},
        "partition": {"method": "metis", "seed": None},
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
            made[block][last] = value
        else:
            made[key] = value
    return made


def prepare(folder: Path, composed: dict[str, Any] | None = None, cores: int = 4) -> Path:
    """A run folder before its first epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    writer.write_json_atomic(folder / "environment.json", {**ENVIRONMENT, "cores": cores})
    writer.write_text_atomic(folder / "config.yaml", yaml.safe_dump(composed or config()))
    return folder


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
    """Write `epochs` of every worker. Worker 1 computes 10 % longer; accuracy rises to `target` in the validation."""
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
                    ("other", "pack", speed * 0.05),
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
                accuracy=(accuracy + 0.02, accuracy + 0.01, accuracy),
                peak_rss_bytes=2**20 * (k + 1),
            )
    if close:
        for out in writers:
            out.close()
    return writers


def finished(folder: Path, composed: dict[str, Any] | None = None, *, cores: int = 4, **measured: Any) -> Path:
    """A whole run folder, as a worker leaves it."""
    composed = composed or config()
    prepare(folder, composed, cores)
    stream(folder, range(composed["epochs"]), workers=composed["gpus"], **measured)
    writer.finalise(folder)
    writer.write_json_atomic(folder / "summary.json", summary.summarise(folder))
    return folder


def measured(folder: Path, metrics: Sequence[dict[tuple[int, str], float]], composed: dict[str, Any],
             *others: Sequence[dict[tuple[int, str], float]]) -> Path:  # fmt: skip
    """A whole run folder: worker 0's metrics {(layer, name): value}, one dictionary per epoch, then those of
    `others`."""
    prepare(folder, composed)
    for worker, own in enumerate((metrics, *others)):
        out = writer.TraceWriter(folder, worker, 0)
        for number, values in enumerate(own):
            made = epoch(number, worker=worker)
            made.metrics.update(values)
            out.write(made, loss=0.0, accuracy=(0.5, 0.5, 0.01 * number), peak_rss_bytes=0)
        out.close()
    writer.finalise(folder)
    writer.write_json_atomic(folder / "summary.json", summary.summarise(folder))
    return folder


def uneven(folder: Path, cores: int) -> Path:
    """A whole run folder of two workers and three epochs in which no two figures are alike: worker 0 waits, worker 1 computes."""
    prepare(folder, config(epochs=3), cores)
    for k in range(2):
        out = writer.TraceWriter(folder, k, 0)
        for number in range(3):
            more = 1 + 0.5 * number
            segments = (("compute", "forward", more * (0.2 + 0.13 * k)), ("wait", "exchange", more * (0.41 - 0.3 * k)),
                        ("other", "pack", more * (0.03 + 0.01 * k)))  # fmt: skip
            sent = {(0, "forward", "halo", 1 - k): (4, int(3e6 * more) + k), (1, "forward", "halo", 1 - k): (4, int(5e6 * more) + k),
                    (-1, "backward", "weights", 1 - k): (0, int(7e5 * more) + k)}  # fmt: skip
            made = epoch(number, worker=k, segments=segments, sent=sent, transport_cpu=0.07 + 0.02 * k)
            made.spans[1].cpu = 0.015 * more  # a wait costs a little too
            made.cpu += made.spans[1].cpu
            out.write(made, loss=0.0, accuracy=(0.5, 0.6 + 0.1 * (number == 1), 0.37 + 0.01 * number), peak_rss_bytes=0)
        out.close()
    writer.finalise(folder)
    writer.write_json_atomic(folder / "summary.json", summary.summarise(folder))
    return folder
