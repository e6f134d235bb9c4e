"""What it costs to train on the rows that the loss needs: `lean` beside `vanilla`, and one worker's epoch
beside DGL's and PyG's, which compute all rows.

Each line's note has |R_1| / V, the share of rows that the last layer takes. It is small where few vertices
train; the other rows are what is saved.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import torch

from harness.base.heap import keep_freed_memory
from harness.comm.recorder import cpu_count
from harness.core.architectures import Gcn
from harness.core.optimisers import Adam
from harness.data import real
from harness.data.graph import Graph
from harness.data.sources import Source
from harness.dev.bench.epoch import Ours, beside, cpu_peers, whole
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import Setting, cpu_per_epoch, in_turn, train
from harness.results.reader import Trace

LEAN, REFERENCE = "lean", "vanilla"
SPLITS = ("low_label", "random")  # 20 training vertices per class, and 60 % of all
GRAPHS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("cora", "amazon-photo", "amazon-computers", "dblp", "coauthor-physics"), SPLITS),
    "tolokers": ("own",),
}
PARTITIONS = ("random", "metis")
# Largest CPU seconds per epoch over vanilla's: where few vertices train, on the sparsest graph, and anywhere.
FEW, FEWEST, ANY = 0.7, 0.5, 1.0
TARGETS = {**{(graph, "low_label"): FEW for graph in GRAPHS}, ("dblp", "low_label"): FEWEST}
# One worker's epoch over DGL's; the twin has no target: nearly all of its rows are needed.
ALONE: tuple[tuple[Source, float | None], ...] = (
    (Source(name="dblp", source="real", split="low_label"), 0.2),
    (Source(name="amazon-computers", source="real", split="low_label"), 0.35),
    (Source(name="reddit", source="twin", scale=0.05, split="low_label"), None),
    (Source(name="reddit", source="twin", scale=0.05), None),
)


def share(trace: Trace, layer: int = 1) -> float | None:
    """|R_layer| / V of a run on the rows that the loss needs; None of a run on all rows."""
    found = trace.metrics.query("name == 'needed_rows' and layer == @layer and epoch == epoch.max()")
    return float(found.value.sum()) / trace.shards["vertices"] if len(found) else None


def lean_lines(s: Setting, graphs: Iterable[str] = GRAPHS) -> list[BenchLine]:
    """CPU seconds per epoch of all 4 workers, `lean` over `vanilla` with `features=once`, the study's model;
    behind them `alone_lines`, where lines are held to targets. A graph whose files are not in `s.data_dir`
    has one line that says so: nothing is downloaded."""
    lines = []
    for graph in graphs:
        if not real.present(graph, s.data_dir):
            lines.append(BenchLine.absent(graph, "CPU s", f"{graph} is not in --data-dir {s.data_dir}"))
            continue
        for split, partition in product(GRAPHS[graph], PARTITIONS):
            of = {"dataset": graph, "dataset__split": split, "data_dir": s.data_dir.resolve()}
            case = {"gpus": 4, "partition": partition, "model__hidden": 64, "model__dropout": 0.5, **of}
            lines.append(_beside(s, f"{graph}, {split}, {partition}", {**case, **s.on_real}))
    return [*lines, *(alone_lines(s.data_dir, s.extent.rounds) if s.extent.targets else [])]


def _beside(s: Setting, name: str, case: dict) -> BenchLine:
    """The line of one graph, split and partition, with |R_1| / V in its note."""
    runs = {system: partial(train, s.folders, system=system, **case) for system in (LEAN, REFERENCE)}
    found = in_turn(runs, s.rounds, lambda run: (cpu_per_epoch(run.trace), share(run.trace)))
    (ours, shares), (peer, _) = (zip(*found[system]) for system in (LEAN, REFERENCE))
    target = TARGETS.get((case["dataset"], case["dataset__split"]), ANY)
    note = f"|R_1| / V = {shares[0]:.3f}"
    what = f"{LEAN} / {REFERENCE}, {name}"
    return BenchLine.of(what, "CPU s", ours, peer, target, note)


def alone_lines(data_dir: Path, rounds: int) -> list[BenchLine]:
    """Seconds of one worker's epoch with `rows=needed features=once` over DGL's and PyG's, all cores."""
    lines = []
    for dataset, target in ALONE:
        name = f"{dataset.name}, {dataset.split}"
        if dataset.source == "real" and not real.present(dataset.name, data_dir):
            why = f"{dataset.name} is not in --data-dir {data_dir}"
            lines.append(BenchLine.absent(name, "s", why))
        else:
            graph = dataset.load(data_dir, seed=1)
            lines += beside_peers(graph, name, rounds, 64, target)
    return lines


def beside_peers(graph: Graph, name: str, rounds: int, hidden: int, target: float | None) -> list[BenchLine]:
    """A line per peer; the target is DGL's. AssertionError where a peer's losses differ from ours."""
    torch.set_num_threads(cpu_count())
    keep_freed_memory()
    shard, model, optimiser = whole(graph), Gcn(layers=2, hidden=hidden, dropout=0.0), Adam()
    name = f"one worker, rows=needed, {name}"
    ours = Ours(shard, model, optimiser, "once", rows="needed")
    peers, absent = cpu_peers(shard, ours.weights(), optimiser, f"{name} / ")
    note = f"|R_1| / V = {ours.trainer.cut.taken[1] / graph.num_vertices:.3f}"
    lines, _ = beside({name: ours}, peers, rounds, {(name, "DGL"): target}, note)
    return [*lines, *absent]
