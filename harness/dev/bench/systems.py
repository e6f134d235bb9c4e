"""What systems cost beside vanilla: their computing (caching, sampling, quantising, bookkeeping), an epoch
over drawn rows, and an epoch on bags of words."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

from harness.core.batches import BatchSystem
from harness.data import real
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import WARM_UP, Folders, cpu_per_epoch, in_turn, seconds_per_epoch, train
from harness.results.reader import Trace
from harness.run.config import make_system
from harness.run.runner import configured

TARGET = 1.3  # of what a system computes
PARTITION = "random"
FEATURES = ("refetch", "once")
REFERENCE, SAMPLED = "vanilla", "bns"
SAMPLED_TARGET = 0.8  # of an epoch that draws a tenth of the halo rows
# By default it renews after a tenth of the run's epochs, which here would be in every epoch.
RENEWED: dict[str, dict] = {"pscgcn": {"system__refresh": 10}}
BAGS, BAG_SYSTEMS = "coauthor-physics", ("pscgcn", "capgnn", "cdfgnn")
BAG_TARGET = 3.0  # of an epoch's CPU seconds on bags of words


def compute_per_epoch(trace: Trace) -> float:
    """CPU seconds of an epoch that all training threads spent computing, packing and keeping books, waiting
    and the transport's threads left out: the median over epochs, so that an epoch in which something is
    renewed does not count."""
    spans = trace.spans
    # Copies to and from memory that workers share are waits of a kind, made by the training thread itself.
    own = spans.kind.isin(["compute", "rest"]) | (
        (spans.kind == "wait") & spans.name.isin(["global_put", "global_get"])
    )
    settled = spans[(spans.epoch >= min(WARM_UP, int(spans.epoch.max()))) & own]
    return float(settled.groupby("epoch").cpu_s.sum().median())


def flops_per_epoch(trace: Trace) -> float:
    """Operations of an epoch's products, of all workers: the median over epochs."""
    return float(trace.epochs.groupby("epoch").flops.sum().median())


def system_lines(
    folders: Folders, rounds: int = 4, names: list[str] | None = None, **keys
) -> list[BenchLine]:
    """A line per system, each with its values in `conf/system/`, 4 workers: its rounds over vanilla's, all
    interleaved. Vanilla against itself is there as well: what that line is off 1 is noise. Who computes more
    products than vanilla, as on replicas, says how many."""
    known = configured()
    made = {name: make_system(known[name]) for name in names or known}
    # An epoch of mini-batches is another thing than one over all vertices.
    made = {name: system for name, system in made.items() if not isinstance(system, BatchSystem)}
    names = list(made)
    # The partitions of a system over a vertex-cut are no other system's.
    fixed = {name: {} if made[name].cut == "vertex" else {"partition": PARTITION} for name in names}
    references = {
        how: {"system": REFERENCE, "system__features": how, "partition": PARTITION} for how in FEATURES
    }
    cases: dict[str, dict] = {
        **references,
        **{name: {"system": name, **fixed[name], **RENEWED.get(name, {})} for name in names},
    }
    runs = {name: partial(train, folders, gpus=4, **case, **keys) for name, case in cases.items()}
    found = in_turn(runs, rounds, lambda run: (compute_per_epoch(run.trace), flops_per_epoch(run.trace)))
    samples = {name: [seconds for seconds, _ in each] for name, each in found.items()}
    flops = {name: statistics.median(each for _, each in found[name]) for name in found}
    lines = []
    for name in names:
        features = known[name].get("features", "once")
        steps = made[name].traits().steps
        notes = [f"features={features}"]
        if not fixed[name]:
            notes.append("vanilla on an edge-cut")
        notes += [f"{key.rpartition('__')[2]}={value}" for key, value in RENEWED.get(name, {}).items()]
        if steps > 1:
            notes.append(f"of a step, {steps} an epoch")
        more = flops[name] / steps / flops[features]
        if more > 1.05:
            notes.append(f"{more:.2f} times vanilla's products")
        what = f"{name} / vanilla, computing"
        ours = [seconds / steps for seconds in samples[name]]
        lines.append(
            BenchLine.of("systems", what, "CPU s", ours, samples[features], TARGET, "; ".join(notes))
        )
    return lines


def sampled_lines(folders: Folders, rounds: int = 4, workers: int = 4, **keys) -> list[BenchLine]:
    """Seconds of an epoch of the system that draws a tenth of its halo rows, over vanilla's with the same
    `features` and partition; CPU seconds of both in the note."""
    lines = []
    for features, partition in product(FEATURES, ("metis", "random")):
        case = {"gpus": workers, "system__features": features, "partition": partition, **keys}
        runs = {
            SAMPLED: partial(train, folders, system=SAMPLED, system__rate=0.1, **case),
            REFERENCE: partial(train, folders, system=REFERENCE, **case),
        }
        both = in_turn(runs, rounds, lambda run: (seconds_per_epoch(run.trace), cpu_per_epoch(run.trace)))
        (ours, our_cpu), (peer, peer_cpu) = (zip(*both[name]) for name in (SAMPLED, REFERENCE))
        note = f"CPU s {statistics.median(our_cpu):.3g} / {statistics.median(peer_cpu):.3g}"
        what = f"{SAMPLED} at rate 0.1, {features}, {partition} / {REFERENCE}"
        lines.append(BenchLine.of("sampled", what, "s", ours, peer, SAMPLED_TARGET, note))
    return lines


def bag_lines(
    folders: Folders, data_dir: Path, rounds: int = 4, names: Sequence[str] = BAG_SYSTEMS, **keys
) -> list[BenchLine]:
    """CPU seconds per epoch of all 4 workers on a graph whose features are bags of words, over vanilla's with
    `features=once`; METIS, for a system over a vertex-cut the cut of METIS's parts, and its own without a
    target. One line that says so where the graph's files are not in `data_dir`: nothing is downloaded."""
    if "dataset" not in keys:
        if not real.present(BAGS, data_dir):
            return [BenchLine.absent("bags", BAGS, "CPU s", f"{BAGS} is not in --data-dir {data_dir}")]
        keys = {"dataset": BAGS, "data_dir": data_dir.resolve(), **keys}
    known = configured()
    shared = {"gpus": 4, "model__hidden": 64, **keys}
    cases: dict[str, dict] = {
        REFERENCE: {"system": REFERENCE, "system__features": "once", "partition": "metis"}
    }
    # A system over a vertex-cut has the one that follows METIS's parts, and its own beside.
    for name, features in product(names, FEATURES):
        vertex = make_system(known[name]).cut == "vertex"
        case = {"system": name, "system__features": features}
        cases[f"{name}, {features}"] = {**case, "partition": "metis/edges" if vertex else "metis"}
        if vertex:
            cases[f"{name}, {features}, its own cut"] = case
    runs = {name: partial(train, folders, **{**shared, **case}) for name, case in cases.items()}
    found = in_turn(runs, rounds, lambda run: cpu_per_epoch(run.trace))
    return [
        BenchLine.of(
            "bags",
            f"{name} / {REFERENCE}, once",
            "CPU s",
            found[name],
            found[REFERENCE],
            BAG_TARGET if "partition" in case else None,
            "" if "partition" in case else "vanilla on METIS's parts, this not",
        )
        for name, case in cases.items()
        if name != REFERENCE
    ]
