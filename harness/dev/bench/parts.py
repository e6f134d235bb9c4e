"""The parts of the bench: each by itself, at its full extent or at a small one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.core.architectures import Gcn
from harness.data.graph import Graph
from harness.data.sources import Source
from harness.dev.bench.batches import batch_lines
from harness.dev.bench.blocks import block_lines
from harness.dev.bench.cpu import cpu_lines
from harness.dev.bench.epoch import epoch_lines
from harness.dev.bench.gpu import gpu_lines
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.needed import alone_lines, lean_lines
from harness.dev.bench.order import order_lines
from harness.dev.bench.overlap import overlap_lines
from harness.dev.bench.partition import partition_lines
from harness.dev.bench.runs import Folders
from harness.dev.bench.spmm import CURVE, spmm_lines
from harness.dev.bench.start import start_lines
from harness.dev.bench.systems import bag_lines, sampled_lines, system_lines


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    graph, model      of what is timed inside the bench's own process
    cut               the graph that part partition cuts
    runs              keys of whole runs, beyond those of `harness.dev.bench.runs.train`
    workers, hidden   that part order tries
    entries           of the graphs with uniform neighbours
    rounds            of an epoch inside the process; the sparse product has half as many again, parts blocks
                      and gpu have twice as many
    targets           whether lines are held to targets
    """

    graph: Source
    model: Gcn
    cut: Source
    runs: dict[str, Any]
    workers: tuple[int, ...]
    hidden: tuple[int, ...]
    entries: tuple[float, ...]
    rounds: int
    targets: bool


FULL = Extent(
    graph=Source(name="reddit", source="twin", scale=0.05),
    model=Gcn(layers=2, hidden=128, dropout=0.0),
    cut=Source(name="reddit", source="twin", scale=0.1753),  # 10^7 undirected edges
    runs={},
    workers=(2, 4),
    hidden=(64, 128, 256),
    entries=CURVE,
    rounds=10,
    targets=True,
)
QUICK = Extent(
    graph=Source(name="reddit", source="twin", scale=0.009),
    model=Gcn(layers=2, hidden=16, dropout=0.0),
    cut=Source(name="reddit", source="twin", scale=0.009),
    runs={"dataset__scale": 0.009, "epochs": 3, "model__hidden": 8},
    workers=(2,),
    hidden=(8,),
    entries=(1e4, 1e5),
    rounds=2,
    targets=False,
)


@dataclass(frozen=True)
class Setting:
    """folders    where whole runs go, and the cache they share
    data_dir   where real graphs are looked for
    rounds     of whole runs
    device     of part gpu; None: CUDA's, or a line that says why there is none"""

    folders: Folders
    data_dir: Path
    rounds: int
    extent: Extent
    device: torch.device | None = None

    def graph(self) -> Graph:
        """The graph of what is timed inside the bench's own process."""
        return self.extent.graph.load(self.data_dir, seed=1)


@dataclass(frozen=True)
class Part:
    """says   what it shows, in one line"""

    says: str
    measure: Callable[[Setting], list[BenchLine]]


def _order(s: Setting) -> list[BenchLine]:
    extent = s.extent
    return order_lines(s.folders, s.rounds, extent.workers, extent.hidden, **extent.runs)


def _on_real(s: Setting) -> dict[str, Any]:
    """Keys of runs on a real graph, which has no scale."""
    return {key: value for key, value in s.extent.runs.items() if key != "dataset__scale"}


def _lean(s: Setting) -> list[BenchLine]:
    alone = alone_lines(s.data_dir, s.extent.rounds) if s.extent.targets else []
    return [*lean_lines(s.folders, s.data_dir, s.rounds, **_on_real(s)), *alone]


# Whole runs first: they are timed by their own processes, and this one has not yet started any threads.
PARTS = {
    "start": Part(
        "seconds from command to first epoch, in stages",
        lambda s: start_lines(s.folders, s.rounds, **s.extent.runs),
    ),
    "order": Part("the chosen order of A X W, beside both orders forced", _order),
    "systems": Part(
        "what each system computes, beside vanilla",
        lambda s: system_lines(s.folders, s.rounds, **s.extent.runs),
    ),
    "cpu": Part(
        "CPU of four workers, beside one worker's, and its floor",
        lambda s: cpu_lines(s.graph(), s.extent.model, s.folders, s.rounds, s.extent.rounds, **s.extent.runs),
    ),
    "sampled": Part(
        "an epoch of bns at rate 0.1, beside vanilla's",
        lambda s: sampled_lines(s.folders, s.rounds, **s.extent.runs),
    ),
    "bags": Part(
        "epochs on bags of words (coauthor-physics in --data-dir), beside vanilla's",
        lambda s: bag_lines(s.folders, s.data_dir, s.rounds, **_on_real(s)),
    ),
    "lean": Part("training on the needed rows (graphs in --data-dir), beside vanilla's and DGL's", _lean),
    "overlap": Part(
        "communication that pipelined systems still wait for, over a slowed link",
        lambda s: overlap_lines(s.graph(), s.extent.model),
    ),
    "partition": Part(
        "seconds that vertex-cuts take",
        lambda s: partition_lines(s.extent.cut.load(s.data_dir, seed=1), s.rounds),
    ),
    "blocks": Part(
        "sampled blocks of a mini-batch, beside DGL's sampler",
        lambda s: block_lines(s.graph(), s.extent.rounds * 2),
    ),
    "batches": Part(
        "one worker's epoch of mini-batches, beside DGL's loader and layers",
        lambda s: batch_lines(s.graph(), s.extent.model.hidden, s.extent.rounds),
    ),
    "epoch": Part(
        "one worker's epoch, beside DGL's and PyG's",
        lambda s: epoch_lines(s.graph(), s.extent.model, s.extent.rounds),
    ),
    "gpu": Part(
        "one worker's epoch on a GPU, beside DGL's and PyG's and its floor",
        lambda s: gpu_lines(s.graph(), s.extent.model, s.extent.rounds * 2, s.device),
    ),
    "spmm": Part(
        "the sparse product, beside DGL's and a copy in memory",
        lambda s: spmm_lines(s.graph(), s.extent.rounds * 3 // 2, s.extent.entries),
    ),
}
