"""Which side of A X W is multiplied first: what is chosen, beside both orders forced."""

import statistics
from collections.abc import Sequence
from functools import partial
from itertools import product

from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import Folders, cpu_per_epoch, in_turn, train
from harness.results.reader import Trace

TARGET = 1.05  # largest ratio to the better of both forced orders
FORCED = ("transform", "aggregate")


def order_lines(
    folders: Folders, rounds: int, workers: Sequence[int], hidden: Sequence[int], **keys
) -> list[BenchLine]:
    """CPU seconds per epoch of all workers, `order=auto` over the better forced order; METIS."""
    lines = []
    for count, width, features in product(workers, hidden, ("refetch", "once")):
        case = {"gpus": count, "system__features": features, "partition": "metis", **keys}
        case["model__hidden"] = width
        runs = {order: partial(train, folders, **case, order=order) for order in ("auto", *FORCED)}
        found = in_turn(runs, rounds, lambda run: (cpu_per_epoch(run.trace), chosen(run.trace)))
        samples = {order: [seconds for seconds, _ in each] for order, each in found.items()}
        better, worse = sorted(FORCED, key=lambda order: statistics.median(samples[order]))
        note = (
            f"chosen: {' or '.join(sorted({each for _, each in found['auto']}))};"
            f" {worse} {statistics.median(samples[worse]):.3g}"
        )
        name = f"{count} workers, hidden {width}, {features}: chosen / {better}"
        lines.append(BenchLine.of("order", name, "CPU s", samples["auto"], samples[better], TARGET, note))
    return lines


def chosen(trace: Trace) -> str:
    """The order of each layer, as "transform, aggregate"; where workers differ, how many transform first."""
    metrics = trace.metrics
    shares = metrics[metrics.name == "transform_first"].groupby("layer").value.mean()
    names = {0.0: FORCED[1], 1.0: FORCED[0]}
    return ", ".join(names.get(share, f"{share:.0%} {FORCED[0]}") for share in shares)
