"""`python -m tests.pretend`: what each system asks of a device in an epoch, beside its budget; with
`--lines SYSTEM`, from which lines of code.
"""

from __future__ import annotations

import argparse
from collections import Counter

from harness.base import tables
from harness.dev.conformance.pool import WorkerPool
from tests.pretend.budget import BUDGET, CEILING, Cost, cost_of
from tests.pretend.tally import DRAIN, SYNCHRONISATION
from tests.pretend.training import CASES, STOP_AT, trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", metavar="SYSTEM", choices=sorted(CASES), help="where the host waits")
    asked = parser.parse_args()
    pool = WorkerPool(preload=["tests.pretend.training"])
    try:
        print(lines(pool, asked.lines) if asked.lines else table(pool))
    finally:
        pool.close()


def table(pool: WorkerPool) -> str:
    """Counts of an epoch, each with its bound."""
    rows = []
    for name in CASES:
        bound = BUDGET.get(name, CEILING)
        rows.append([name, *(f"{now} of {most}" for now, most in zip(cost_of(trained(pool, name)), bound))])
    return tables.text(["system", *Cost._fields], rows)


def lines(pool: WorkerPool, name: str) -> str:
    """Where worker 0 waits for its device in one epoch."""
    waits: Counter[tuple[str, str]] = Counter()
    for note, number in trained(pool, name).tallies[0].items():
        if note.epoch == STOP_AT - 1 and note.kind in (SYNCHRONISATION, DRAIN):
            waits[note.line, f"{note.kind}: {note.what}"] += number
    return tables.text(
        ["line", "why", "times"], [[*where, number] for where, number in waits.most_common()], ["line", "why"]
    )


if __name__ == "__main__":
    main()
