"""Drawing neighbours and making blocks, beside DGL's sampler: nanoseconds per drawn edge, one process.

Ours ends with the sparse operators of every layer; DGL's with its blocks, as its `NeighborSampler` gives
them. The sides take turns, and draw from the same graph for the same seeds.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from harness.base.dgl import load_dgl
from harness.comm.comm import Comm
from harness.comm.pulls import Own
from harness.comm.recorder import Recorder, cpu_count
from harness.core.adjacency import Adjacency
from harness.core.batches import Block
from harness.core.kernels.spmm import make_kernel
from harness.data.graph import Graph
from harness.dev.bench.epoch import whole
from harness.dev.bench.lines import BenchLine, interleaved
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import Expander, Names, hop_key

SEEDS, FANOUTS = 1000, (15, 10, 5)  # of DGL's example on ogbn-products, from the seeds
NO_SLOWER = 1.0  # largest ratio to DGL's on one thread


def block_lines(graph: Graph, rounds: int) -> list[BenchLine]:
    """A line for each number of threads that DGL may take: ours takes one."""
    rng = np.random.default_rng(1)
    seeds = rng.permutation(np.flatnonzero(graph.train))[:SEEDS].astype(np.int32)
    ours, edges = our_sampler(graph, seeds)
    name = f"{len(seeds)} seeds, fan-outs {', '.join(map(str, FANOUTS))}"
    dgl = load_dgl()
    if dgl is None:
        return [BenchLine.absent(f"{name} / DGL", "ns per edge")]
    lines = []
    for threads in dict.fromkeys((1, cpu_count())):
        theirs, their_edges = dgl_sampler(dgl, graph, seeds, threads)
        seconds = interleaved({"ours": ours, "dgl": theirs}, rounds)
        took = [1e9 * each / edges for each in seconds["ours"]]
        peer = [1e9 * each / their_edges for each in seconds["dgl"]]
        said = f"{name} / DGL on {threads} thread{'s' * (threads > 1)}"
        held = NO_SLOWER if threads == 1 else None
        lines.append(BenchLine.of(said, "ns per edge", took, peer, held, f"{edges:,} edges"))
    return lines


def our_sampler(graph: Graph, seeds: np.ndarray) -> tuple[Callable[[], object], int]:
    """A call that makes the blocks of one batch, and how many edges they have."""
    shard, cpu = whole(graph), torch.device("cpu")
    comm = Comm(0, 1, cpu, Recorder())
    names = Names.gathered(comm, shard, np.asarray(shard.degrees))
    expander = Expander(names, Own(comm, lists_of(shard, local=False)))
    like = Adjacency(shard, "mean", make_kernel("numba"), cpu)

    def sample() -> list[Block]:
        frontier, made = seeds, []
        for hop, most in enumerate(FANOUTS, 1):
            layer = len(FANOUTS) - hop
            chosen = expander.choose(frontier, hop_key(1, 0, 0, hop), most, layer)
            found, frontier = expander.block(frontier, chosen)
            made.append(Block(found, like, layer))
        return made

    return sample, sum(block.found.num_edges for block in sample())


def dgl_sampler(
    dgl: ModuleType | Any, graph: Graph, seeds: np.ndarray, threads: int
) -> tuple[Callable[[], object], int]:
    """A call that makes DGL's blocks of the same batch on `threads` threads, and how many edges they have."""
    there = dgl_graph(dgl, graph)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)))
    given = torch.from_numpy(seeds.astype(np.int64))

    def sample() -> Any:
        dgl.utils.set_num_threads(threads)
        return sampler.sample_blocks(there, given)[2]

    return sample, sum(block.num_edges() for block in sample())


def dgl_graph(dgl: ModuleType | Any, graph: Graph) -> Any:
    """The graph as one of DGL's, with its formats made: in-edges without self-loops, as everywhere here."""
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    kept = rows != graph.indices
    ends = (torch.from_numpy(ids[kept].astype(np.int64)) for ids in (graph.indices, rows))
    there = dgl.graph(tuple(ends), num_nodes=graph.num_vertices)
    there.create_formats_()
    return there
