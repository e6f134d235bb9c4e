"""`halobench bench --against CHECKOUT [KEY=VALUE ...]`: this code beside another revision's, in one run.

Each run is a process of its own that starts in its checkout, so it imports that checkout's code and reads its
`conf/`. The two sides take turns, and who is first changes every round: what else the machine does falls on
both alike. Both have the same keys; a key whose default changed between the revisions is to be given. The
first run of each side and case fills its cache and is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.base.errors import InputError
from harness.base.places import ROOT
from harness.base.words import key_values
from harness.dev.bench.compare import EXACT
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import (
    Finished,
    Folders,
    cpu_per_epoch,
    seconds_per_epoch,
    train,
)
from harness.dev.bench.start import start_seconds

HERE, THERE = "here", "there"
TIMES = {
    "epoch": ("s", lambda run: seconds_per_epoch(run.trace)),
    "epoch, all workers' CPU": ("CPU s", lambda run: cpu_per_epoch(run.trace)),
    "command to first epoch": ("s", start_seconds),
}


def checkout(path: Path) -> Path:
    """The absolute path. InputError where no HaloBench is there."""
    if not (path / "harness" / "__main__.py").is_file():
        raise InputError(
            f"--against {path} holds no harness/__main__.py: give a checkout, made by git worktree add PATH"
            " REVISION"
        )
    return path.resolve()


def keys_of(words: list[str]) -> dict[str, str]:
    """KEY=VALUE words of a run as a dictionary. InputError where one has no "="."""
    return {key.lstrip("+"): value for key, value in key_values(words).items()}


def cases_of(keys: Mapping[str, str]) -> dict[str, dict]:
    """One worker and four, by name, or as many as `keys` ask for."""
    given = {"partition": "metis", **keys}
    asked = [given.pop(name) for name in ("gpus", "workers") if name in given]
    counts = asked or ["1", "4"]
    return {f"{n} worker{'' if n == '1' else 's'}": {**given, "gpus": n} for n in counts}


def sent(run: Finished) -> dict[tuple, int]:
    """Bytes that all workers of a run sent in all epochs, by layer, direction and purpose."""
    by = ["layer", "direction", "purpose"]
    summed = run.trace.comm.groupby(by, as_index=False)["bytes"].sum()
    return {tuple(key): int(count) for *key, count in summed[[*by, "bytes"]].itertuples(index=False)}


@dataclass
class Measured:
    """What a run showed: values of TIMES, and `sent`."""

    times: dict[str, float]
    sent: dict[tuple, int]


def measured(run: Finished) -> Measured:
    """Read at once: the same run of the next round takes the folder of this one."""
    return Measured({what: of(run) for what, (_, of) in TIMES.items()}, sent(run))


def against_lines(scratch: Path, other: Path, keys: Mapping[str, str], rounds: int) -> list[BenchLine]:
    """Lines whose `ours` is this code and whose `peer` is the checkout `other`; runs and caches in scratch.

    RunFailed with what a run said where it failed.
    """
    own = ROOT
    sides = {
        name: Folders(scratch / name / "results", scratch / name / "cache", tree)
        for name, tree in ((HERE, own), (THERE, other))
    }
    cases = cases_of(keys)
    for case in cases.values():
        for folders in sides.values():
            train(folders, **case)
    runs: dict[tuple[str, str], list[Measured]] = {(name, side): [] for name in cases for side in sides}
    for turn in range(rounds):
        for name, case in cases.items():
            for side in list(sides)[:: -1 if turn % 2 else 1]:
                runs[name, side].append(measured(train(sides[side], **case)))
    return [line for name in cases for line in _lines(name, runs[name, HERE], runs[name, THERE])]


def _lines(name: str, here: list[Measured], there: list[Measured]) -> list[BenchLine]:
    lines = []
    for what, (unit, _) in TIMES.items():
        seconds, others = ([run.times[what] for run in runs] for runs in (here, there))
        lines.append(BenchLine.of("against", f"{name}: {what}", unit, seconds, others))
    a, b = ([run.sent for run in runs] for runs in (here, there))
    # A line per layer, direction and purpose, so that bytes cannot move from one to another unseen.
    for kind in sorted({kind for each in a + b for kind in each}):
        layer, direction, purpose = kind
        ours, theirs = ([each.get(kind, 0) for each in side] for side in (a, b))
        what = f"{name}: sent, layer {layer}, {direction}, {purpose}"
        lines.append(BenchLine("against", what, ours[0], EXACT, theirs[0], samples=ours, peer_samples=theirs))
    return lines
