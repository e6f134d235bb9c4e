"""The parts of the bench: each by itself, at its full extent or at a small one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness.data.partition.config import EDGE_METHODS
from harness.data.partition.vertexcut import assign_edges
from harness.dev.bench.batches import batch_lines, block_lines
from harness.dev.bench.cpu import cpu_lines, order_lines
from harness.dev.bench.epoch import epoch_lines
from harness.dev.bench.gpu import gpu_lines
from harness.dev.bench.lines import BenchLine, interleaved
from harness.dev.bench.needed import lean_lines
from harness.dev.bench.overlap import overlap_lines
from harness.dev.bench.runs import Setting, stages, train
from harness.dev.bench.spmm import spmm_lines
from harness.dev.bench.systems import bag_lines, sampled_lines, system_lines

START_TARGET_S, WORKERS = 1.5, 4
CUT_TARGET_S, CUT_INTO = 60.0, 8


@dataclass(frozen=True)
class Part:
    """says   what it shows, in one line"""

    says: str
    measure: Callable[[Setting], list[BenchLine]]


def start_lines(s: Setting) -> list[BenchLine]:
    """Seconds from the command to the end of the first epoch, with warm caches: in all, and in stages."""
    case = {"gpus": WORKERS, "epochs": 2, "system__features": "once", **s.extent.runs}
    run = partial(train, s.folders, **case)
    run()  # makes shards and compiles loops
    found = [stages(run()) for _ in range(s.rounds)]
    whole = [sum(each.values()) for each in found]
    return [
        BenchLine.of(f"command to first epoch, {WORKERS} workers", "s", whole, target=START_TARGET_S),
        *(BenchLine.of(f"  of it {stage}", "s", [each[stage] for each in found]) for stage in found[0]),
    ]


def partition_lines(s: Setting) -> list[BenchLine]:
    """Seconds that each vertex-cut partitioner takes for a graph's edges, held to CUT_TARGET_S."""
    graph = s.extent.cut.load(s.data_dir, seed=1)
    edges = len(assign_edges(graph, EDGE_METHODS[0], CUT_INTO, 1).owner)
    cuts = {method: partial(assign_edges, graph, method, CUT_INTO, 1) for method in EDGE_METHODS}
    return [
        BenchLine.of(f"{method}: {edges:,} edges into {CUT_INTO}", "s", seconds, target=CUT_TARGET_S)
        for method, seconds in interleaved(cuts, s.rounds, warm_up=0).items()
    ]


# Whole runs first: they are timed by their own processes, and this one has not yet started any threads.
PARTS = {
    "start": Part("seconds from command to first epoch, in stages", start_lines),
    "order": Part("the chosen order of A X W, beside both orders forced", order_lines),
    "systems": Part("what each system computes, beside vanilla", system_lines),
    "cpu": Part("CPU of four workers, beside one worker's, and its floor", cpu_lines),
    "sampled": Part("an epoch of bns at rate 0.1, beside vanilla's", sampled_lines),
    "bags": Part("epochs on bags of words (coauthor-physics in --data-dir), beside vanilla's", bag_lines),
    "lean": Part(
        "training on the needed rows (graphs in --data-dir), beside vanilla's and DGL's", lean_lines
    ),
    "overlap": Part(
        "communication that pipelined systems still wait for, over a slowed link",
        lambda s: overlap_lines(s.graph(), s.extent.model),
    ),
    "partition": Part("seconds that vertex-cuts take", partition_lines),
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
