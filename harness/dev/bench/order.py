"""Which side of A X W is multiplied first: what is chosen, beside both orders forced."""

from __future__ import annotations

import statistics
from functools import partial
from itertools import product

from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import Finished, Folders, cpu_per_epoch, in_turn, train

TARGET = 1.05  # largest ratio to the better of both forced orders
WORKERS, HIDDEN = (2, 4), (64, 128, 256)
FORCED = ("transform", "aggregate")


def order_lines(
    folders: Folders,
    rounds: int = 4,
    workers: tuple[int, ...] = WORKERS,
    hidden: tuple[int, ...] = HIDDEN,
    **keys,
) -> list[BenchLine]:
    """CPU seconds per epoch of all workers, `order=auto` over the better forced order; METIS."""
    lines = []
    for count, width, features in product(workers, hidden, ("refetch", "once")):
        case = {"gpus": count, "system__features": features, "partition": "metis", **keys}
        case["model__hidden"] = width
        runs = {order: partial(train, folders, **case, order=order) for order in ("auto", *FORCED)}
        chosen: set[str] = set()

        def read(run: Finished, chosen: set[str] = chosen) -> float:
            if run.trace.config["order"] == "auto":
                chosen.add(_chosen(run))
            return cpu_per_epoch(run.trace)

        found = in_turn(runs, rounds, read)
        better, worse = sorted(FORCED, key=lambda order: statistics.median(found[order]))
        note = f"chosen: {' or '.join(sorted(chosen))}; {worse} {statistics.median(found[worse]):.3g}"
        name = f"{count} workers, hidden {width}, {features}: chosen / {better}"
        lines.append(BenchLine.of("order", name, "CPU s", found["auto"], found[better], TARGET, note))
    return lines


def _chosen(run: Finished) -> str:
    """What each layer chose, as "transform, aggregate"; where workers differ, how many chose the first."""
    metrics = run.trace.metrics
    shares = metrics[metrics.name == "transform_first"].groupby("layer").value.mean()
    names = {0.0: FORCED[1], 1.0: FORCED[0]}
    return ", ".join(names.get(share, f"{share:.0%} {FORCED[0]}") for share in shares)
