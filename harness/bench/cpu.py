"""CPU seconds per epoch of several workers: beside one worker's, and beside those of the revision before."""

from __future__ import annotations

from functools import partial

from harness.bench import before
from harness.bench.lines import Line
from harness.bench.runs import Folders, cpu_per_epoch, in_turn, train

BEFORE_TARGET = 0.93  # largest ratio to the revision before
ONE, SINGLE = "one worker, once", "one worker of one thread, once"
CASES = {
    ONE: dict(gpus=1, system__features="once"),
    SINGLE: dict(gpus=1, system__features="once", threads=1),
    "one worker, refetch": dict(gpus=1, system__features="refetch"),
    "4 workers, once, metis": dict(gpus=4, system__features="once", partition="metis"),
    "4 workers, once, random": dict(gpus=4, system__features="once", partition="random"),
    "4 workers, refetch, metis": dict(gpus=4, system__features="refetch", partition="metis"),
    "4 workers, refetch, random": dict(gpus=4, system__features="refetch", partition="random"),
}
HELD = "4 workers, once, metis"


def cpu_lines(folders: Folders, rounds: int = 4, cases: dict[str, dict] = CASES, **keys) -> list[Line]:
    """CPU seconds per epoch of all workers: 4 workers over one, and 4 workers on METIS over the revision
    before where git has it."""
    runs = {name: partial(train, folders, **{**case, **keys}) for name, case in cases.items()}
    old = before.folders(folders)
    earlier = {f"{name}, before": name for name in cases if name.endswith("metis") and old is not None}
    if old is not None:
        runs |= {name: partial(train, old, **{**cases[now], **keys}) for name, now in earlier.items()}
        for name in earlier:
            runs[name]()  # makes its shards and compiles its loops
    found = in_turn(runs, rounds, lambda run: cpu_per_epoch(run.trace))

    def line(what: str, ours: str, peer: str, target: float | None = None, note: str = "") -> Line:
        return Line.of("cpu", what, "CPU s", found[ours], found[peer], target, note)

    lines = []
    for name in cases:
        if not name.startswith("one"):
            one = f"one worker, {name.split(', ')[1]}"
            lines.append(line(f"{name} / one worker", name, one))
    lines += [
        line(f"{now} / revision {before.BEFORE}", now, name, BEFORE_TARGET) for name, now in earlier.items()
    ]
    if SINGLE in found:
        note = "no waiting between threads in the divisor"
        lines.append(line(f"{HELD} / one worker of one thread", HELD, SINGLE, note=note))
        note = "what a second thread adds to one worker"
        lines.append(line("one worker of all cores / of one thread", ONE, SINGLE, note=note))
    return lines
