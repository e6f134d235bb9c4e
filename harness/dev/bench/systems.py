"""What systems cost beside vanilla: their computing (caching, sampling, quantising, bookkeeping), an epoch
over drawn rows, and an epoch on bags of words."""

import statistics
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from harness.core.batches import BatchSystem
from harness.data import real
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import (
    Setting,
    compute_per_epoch,
    cpu_per_epoch,
    flops_per_epoch,
    in_turn,
    seconds_per_epoch,
    train,
)
from harness.run.config import make_system
from harness.run.runner import configured

TARGET = 1.3  # of what a system computes
PARTITION = "random"
FEATURES = ("refetch", "once")
REFERENCE, SAMPLED = "vanilla", "bns"
SAMPLED_TARGET = 0.75  # of an epoch that draws a tenth of the halo rows
# By default PSC-GCN renews after a tenth of the run's epochs, which would be in every epoch here.
RENEWED: dict[str, dict[str, Any]] = {"pscgcn": {"system__refresh": 10}}
BAGS, BAG_SYSTEMS = "coauthor-physics", ("pscgcn", "capgnn", "cdfgnn")
BAG_TARGET = 3.0  # of an epoch's CPU seconds on bags of words


def system_lines(s: Setting, names: Sequence[str] | None = None) -> list[BenchLine]:
    """A line per system, each with its values in `conf/system/`, 4 workers: CPU seconds that an epoch
    computes, over those of vanilla with the same `features`. Where an epoch has several steps, a step is
    compared instead. Vanilla is compared with itself too: how far that line is from 1 is noise. The note says
    where a system computes more products than vanilla, as on replicas."""
    known = configured()
    made = {name: make_system(known[name]) for name in names or known}
    # An epoch of mini-batches does not compare with one over all vertices.
    made = {name: system for name, system in made.items() if not isinstance(system, BatchSystem)}
    cases: dict[str, dict[str, Any]] = {
        how: {"system": REFERENCE, "system__features": how, "partition": PARTITION} for how in FEATURES
    }
    for name, system in made.items():
        # A system over a vertex-cut takes its own partition: no edge-cut would do.
        cut = {} if system.cut == "vertex" else {"partition": PARTITION}
        cases[name] = {"system": name, **cut, **RENEWED.get(name, {})}
    runs = {name: partial(train, s.folders, gpus=4, **case, **s.extent.runs) for name, case in cases.items()}
    both = in_turn(runs, s.rounds, lambda run: (compute_per_epoch(run.trace), flops_per_epoch(run.trace)))
    samples = {name: [seconds for seconds, _ in each] for name, each in both.items()}
    flops = {name: statistics.median(each for _, each in both[name]) for name in both}
    lines = []
    for name, system in made.items():
        features, steps = known[name].get("features", "once"), system.traits().steps
        notes = [f"features={features}"]
        if system.cut == "vertex":
            notes.append("vanilla on an edge-cut")
        notes += [f"{key.removeprefix('system__')}={value}" for key, value in RENEWED.get(name, {}).items()]
        if steps > 1:
            notes.append(f"of a step, {steps} per epoch")
        more = flops[name] / steps / flops[features]
        if more > 1.05:
            notes.append(f"{more:.2f} times vanilla's products")
        what, note = f"{name} / {REFERENCE}, computing", "; ".join(notes)
        ours = [seconds / steps for seconds in samples[name]]
        lines.append(BenchLine.of(what, "CPU s", ours, samples[features], TARGET, note))
    return lines


def sampled_lines(s: Setting) -> list[BenchLine]:
    """Seconds of an epoch of the system that draws a tenth of its halo rows, 4 workers, over vanilla's with
    the same `features` and partition; CPU seconds of both in the note."""
    lines = []
    for features, partition in product(FEATURES, ("metis", "random")):
        case = {"gpus": 4, "system__features": features, "partition": partition, **s.extent.runs}
        runs = {
            SAMPLED: partial(train, s.folders, system=SAMPLED, system__rate=0.1, **case),
            REFERENCE: partial(train, s.folders, system=REFERENCE, **case),
        }
        both = in_turn(runs, s.rounds, lambda run: (seconds_per_epoch(run.trace), cpu_per_epoch(run.trace)))
        (ours, our_cpu), (peer, peer_cpu) = (zip(*both[name]) for name in (SAMPLED, REFERENCE))
        note = f"CPU s {statistics.median(our_cpu):.3g} / {statistics.median(peer_cpu):.3g}"
        what = f"{SAMPLED} at rate 0.1, {features}, {partition} / {REFERENCE}"
        lines.append(BenchLine.of(what, "s", ours, peer, SAMPLED_TARGET, note))
    return lines


def bag_lines(s: Setting) -> list[BenchLine]:
    """CPU seconds per epoch of all 4 workers on a graph whose features are bags of words, over vanilla's with
    `features=once` on METIS's parts. A system over an edge-cut has METIS's parts. A system over a vertex-cut
    has the cut made of METIS's parts, and a further line without a target for its own cut. Where the graph's
    files are not in `s.data_dir` one line says so: nothing is downloaded."""
    if not real.present(BAGS, s.data_dir):
        return [BenchLine.absent(BAGS, "CPU s", f"{BAGS} is not in --data-dir {s.data_dir}")]
    shared = {"gpus": 4, "model__hidden": 64, "dataset": BAGS, "data_dir": s.data_dir.resolve(), **s.on_real}
    known = configured()
    cases = {}
    for name, features in product(BAG_SYSTEMS, FEATURES):
        vertex = make_system(known[name]).cut == "vertex"
        case = {"system": name, "system__features": features}
        cases[f"{name}, {features}"] = {**case, "partition": "metis/edges" if vertex else "metis"}
        if vertex:
            cases[f"{name}, {features}, its own cut"] = case
    reference = {"system": REFERENCE, "system__features": "once", "partition": "metis"}
    runs = {
        name: partial(train, s.folders, **shared, **case)
        for name, case in {REFERENCE: reference, **cases}.items()
    }
    found = in_turn(runs, s.rounds, lambda run: cpu_per_epoch(run.trace))
    lines = []
    for name, case in cases.items():
        target, note = (
            (BAG_TARGET, "") if "partition" in case else (None, "vanilla on METIS's parts, this not")
        )
        what = f"{name} / {REFERENCE}, once"
        lines.append(BenchLine.of(what, "CPU s", found[name], found[REFERENCE], target, note))
    return lines
