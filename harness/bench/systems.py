"""What a system computes beside what vanilla computes: caching, sampling, quantising, bookkeeping.

CPU seconds of the training threads in an epoch, waiting and the transport's threads left out, over vanilla's
with the same `features`.
"""

from __future__ import annotations

from harness.bench.lines import Line
from harness.bench.runs import WARM_UP, Folders, train
from harness.run.config import make_system
from harness.run.runner import configured
from harness.trace.reader import Trace

TARGET = 1.3
PARTITION = "random"


def compute_per_epoch(trace: Trace) -> float:
    """CPU seconds of an epoch that all training threads spent computing, packing and keeping books: the
    median over epochs, so that an epoch in which something is renewed does not count."""
    spans = trace.spans
    # Copies to and from memory that workers share are waits of a kind, made by the training thread itself.
    own = spans.kind.isin(["compute", "rest"]) | (
        (spans.kind == "wait") & spans.name.isin(["global_put", "global_get"])
    )
    settled = spans[(spans.epoch >= min(WARM_UP, int(spans.epoch.max()))) & own]
    return float(settled.groupby("epoch").cpu_s.sum().median())


def system_lines(folders: Folders, rounds: int = 3, names: list[str] | None = None, **keys) -> list[Line]:
    """A line per system, each with its values in `conf/system/`, 4 workers: the least of its rounds over the
    least of vanilla's, all interleaved. Vanilla against itself is there as well: what that line is off 1 is
    noise."""
    known = configured()
    names = names or list(known)
    made = {name: make_system(known[name]) for name in names}
    # The partitions of a system over a vertex-cut are no other system's.
    fixed = {name: {} if made[name].cut == "vertex" else {"partition": PARTITION} for name in names}
    references = {
        how: {"system": "vanilla", "system__features": how, "partition": PARTITION}
        for how in ("refetch", "once")
    }
    cases = [*references.items(), *((name, {"system": name, **fixed[name]}) for name in names)]
    samples: dict[str, list[float]] = {name: [] for name, _ in cases}
    for _ in range(rounds):
        for name, case in cases:
            samples[name].append(compute_per_epoch(train(folders, gpus=4, **case, **keys).trace))
    lines = []
    for name in names:
        features = known[name].get("features", "once")
        steps = made[name].steps()
        notes = [f"features={features}"]
        if not fixed[name]:
            notes.append("vanilla on an edge-cut")
        if steps > 1:
            notes.append(f"of a step, {steps} an epoch")
        what = f"{name} / vanilla, computing"
        ours, peer = [seconds / steps for seconds in samples[name]], samples[features]
        lines.append(
            Line("systems", what, min(ours), "CPU s", min(peer), TARGET, "; ".join(notes), ours, peer)
        )
    return lines
