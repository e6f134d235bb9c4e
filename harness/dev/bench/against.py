"""`halobench bench --against CHECKOUT [KEY=VALUE ...]`: this code beside another revision's, in one run.

Each run is a process of its own that starts in its checkout, so it imports that checkout's code and reads its
`conf/`. The two sides take turns, and who is first changes every round: what else the machine does falls on
both alike. Both have the same keys; a key whose default changed between the revisions is to be given. The
first run of each side and case fills its cache and is not kept.

Samples of a line are compared by the Mann-Whitney U test, two-sided, which asks nothing of their
distribution; bytes must be equal.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from harness.base.errors import InputError
from harness.base.places import ROOT
from harness.base.terminal import Terminal
from harness.base.words import key_values
from harness.dev.bench.lines import NOT_JUDGED, BenchLine, table
from harness.dev.bench.runs import Finished, Folders, cpu_per_epoch, in_turn, seconds_per_epoch, stages, train
from harness.results.report.estimate import side_of_samples

ALPHA = 0.05  # p-value below which a difference is taken for one
MARGIN = 0.1  # how much slower a line may become, relative, before the exit code says so
EXACT = "bytes"  # the unit whose values are equal or not
SLOWER = 1  # the exit code; 2 is that of bad input

HERE, THERE = "here", "there"
TIMES = {
    "epoch": ("s", lambda run: seconds_per_epoch(run.trace)),
    "epoch, all workers' CPU": ("CPU s", lambda run: cpu_per_epoch(run.trace)),
    "command to first epoch": ("s", lambda run: sum(stages(run).values())),
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


def measured(run: Finished) -> tuple[dict[str, float], dict[tuple, int]]:
    """What a run showed: values of TIMES, and `sent`."""
    return {what: of(run) for what, (_, of) in TIMES.items()}, sent(run)


def against_lines(scratch: Path, other: Path, keys: Mapping[str, str], rounds: int) -> list[BenchLine]:
    """Lines whose `ours` is this code and whose `peer` is the checkout `other`; runs and caches in scratch.

    InputError with what a run said where it failed.
    """
    cases = cases_of(keys)
    sides = {
        side: Folders(scratch / side / "results", scratch / side / "cache", tree)
        for side, tree in ((HERE, ROOT), (THERE, other))
    }
    runs = {
        (name, side): partial(train, folders, **case)
        for name, case in cases.items()
        for side, folders in sides.items()
    }
    for run in runs.values():
        run()
    found = in_turn(runs, rounds, measured)
    return [line for name in cases for line in _lines(name, found[name, HERE], found[name, THERE])]


def _lines(name: str, *sides: list[tuple[dict[str, float], dict[tuple, int]]]) -> list[BenchLine]:
    """The lines of one case, from the runs of this code and of the other."""
    lines = []
    for what, (unit, _) in TIMES.items():
        seconds, others = ([times[what] for times, _ in runs] for runs in sides)
        lines.append(BenchLine.of(f"{name}: {what}", unit, seconds, others))
    # A line per layer, direction and purpose, so that bytes cannot move from one to another unseen.
    for kind in sorted({kind for runs in sides for _, each in runs for kind in each}):
        layer, direction, purpose = kind
        ours, theirs = ([each.get(kind, 0) for _, each in runs] for runs in sides)
        what = f"{name}: sent, layer {layer}, {direction}, {purpose}"
        lines.append(BenchLine.of(what, EXACT, ours, theirs))
    return lines


def judge(line: BenchLine, margin: float = MARGIN) -> None:
    """Compare the samples of `line`, this code's, with those of its peer, the other revision: set its `word`
    and `failed`, and its note to the p-value, where it is no count of bytes and has samples enough."""
    old, new = line.peer_samples, line.samples
    if line.unit == EXACT:
        line.failed = set(old) != set(new)
        line.word = "differ" if line.failed else "equal"
        return
    side, p = side_of_samples(old, new, ALPHA)
    line.note = "" if side is None else f"p = {p:.3f}"
    if line.busy:
        line.word = NOT_JUDGED
    elif not side:
        line.word = "too few samples" if side is None else "no difference"
    else:
        assert line.peer is not None
        line.word = "slower" if line.ours > line.peer else "faster"
        line.failed = line.ours > (1 + margin) * line.peer


def show(lines: list[BenchLine], console: Terminal, margin: float) -> int:
    """Print lines that are judged, and name those that have become worse; returns the exit code."""
    console.print(table(lines))
    failed = [line.name.strip() for line in lines if line.failed]
    console.say(
        f"slower by more than {margin:.0%} (p < {ALPHA:g}), or other bytes: {'; '.join(failed) or 'none'}"
    )
    return SLOWER if failed else 0
