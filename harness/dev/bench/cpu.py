"""CPU seconds per epoch of several workers, beside one worker's."""

from __future__ import annotations

from functools import partial

from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import Folders, cpu_per_epoch, in_turn, train

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


def cpu_lines(folders: Folders, rounds: int = 4, cases: dict[str, dict] = CASES, **keys) -> list[BenchLine]:
    """CPU seconds per epoch of all workers: 4 workers over one."""
    runs = {name: partial(train, folders, **{**case, **keys}) for name, case in cases.items()}
    found = in_turn(runs, rounds, lambda run: cpu_per_epoch(run.trace))

    def line(what: str, ours: str, peer: str, note: str = "") -> BenchLine:
        return BenchLine.of("cpu", what, "CPU s", found[ours], found[peer], note=note)

    lines = []
    for name in cases:
        if not name.startswith("one"):
            one = f"one worker, {name.split(', ')[1]}"
            lines.append(line(f"{name} / one worker", name, one))
    if SINGLE in found:
        note = "no waiting between threads in the divisor"
        lines.append(line(f"{HELD} / one worker of one thread", HELD, SINGLE, note=note))
        note = "what a second thread adds to one worker"
        lines.append(line("one worker of all cores / of one thread", ONE, SINGLE, note=note))
    return lines
