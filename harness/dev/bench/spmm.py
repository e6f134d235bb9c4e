"""The sparse product by itself: beside DGL's copy-sum, over the number of entries, and beside a copy.

Timed is `SparseOperator.forward`, packing included, without scales and self-loops. The sides take turns.
"""

import multiprocessing
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from harness.base.dgl import load_dgl
from harness.base.heap import keep_freed_memory
from harness.base.scratch import scratch
from harness.comm.recorder import cpu_count
from harness.core.kernels.dgl_kernel import CopySum
from harness.core.kernels.spmm import NumbaKernel, SparseOperator
from harness.core.kernels.tiling import Tilings
from harness.core.kernels.tiling_measured import random_block
from harness.data.graph import Graph
from harness.data.partition.shard import Csr
from harness.dev.bench.epoch import tilings_of, whole
from harness.dev.bench.gpu import copy_rates
from harness.dev.bench.lines import BenchLine, interleaved

NO_WORSE = {41: 1.05, 64: 1.05, 128: 0.95}  # largest ratio to DGL's, by width
GROWTH = 1.25  # largest exponent of the cost over entries
DEGREE, WIDTH = 50, 128  # of the graphs with uniform neighbours


def spmm_lines(graph: Graph, rounds: int, sizes: Sequence[float]) -> list[BenchLine]:
    """Every line of the part; `graph` is that of the comparison with DGL, `sizes` are the entries of
    the graphs with uniform neighbours."""
    torch.set_num_threads(cpu_count())
    keep_freed_memory()
    block = whole(graph).inner_edges
    copied = [rate / 1e9 for rate in copy_rates(torch.device("cpu"))]
    copy = BenchLine.of("memory copied, read plus written", "GB/s", copied)
    return [copy, *dgl_lines(block, rounds), *uniform_lines(sizes, rounds)]


def _line(
    name: str, seconds: dict[str, list[float]], block: Csr, width: int, target: float | None
) -> BenchLine:
    """Milliseconds of "ours" beside the other side's."""
    sides = {side: [1e3 * each for each in samples] for side, samples in seconds.items()}
    ours = sides.pop("ours")
    (peer,) = sides.values() if sides else ([],)
    median = statistics.median(ours)
    note = (
        f"{1e6 * median / block.num_entries:.3g} ns per entry; gathers"
        f" {4 * width * block.num_entries / median / 1e6:.0f} GB/s"
    )
    return BenchLine.of(name, "ms", ours, peer, target if peer else None, note)


def dgl_lines(block: Csr, rounds: int) -> list[BenchLine]:
    """A line per width beside DGL's copy-sum on the same x. DGL may end its process, so each width has a
    process of its own."""
    if load_dgl() is None:
        return [BenchLine.absent("DGL", "ms")]
    tilings = tilings_of(block)
    context = multiprocessing.get_context("forkserver")
    lines = []
    for width, target in NO_WORSE.items():
        name = f"width {width}, {block.num_entries:,} entries / DGL copy-sum"
        with scratch() as folder:
            path = folder / "seconds.pt"
            child = context.Process(target=_beside_dgl, args=(block, tilings, width, rounds, path))
            child.start()
            child.join()
            if child.exitcode == 0:
                lines.append(_line(name, torch.load(path), block, width, target))
            else:
                why = f"DGL's side ended with exit code {child.exitcode}"
                lines.append(BenchLine.absent(name, "ms", why))
    return lines


def _beside_dgl(block: Csr, tilings: Tilings, width: int, rounds: int, path: Path) -> None:
    torch.set_num_threads(cpu_count())
    keep_freed_memory()
    ours, theirs = SparseOperator(block, kernel=NumbaKernel(tilings)), CopySum(block)
    x, out = torch.rand(block.num_columns, width), torch.empty(block.num_rows, width)
    total = torch.empty_like(out)

    def copy_sum() -> None:
        total.zero_()
        theirs.add(x, total)

    seconds = interleaved({"ours": lambda: ours.forward(x, out=out), "dgl": copy_sum}, rounds)
    torch.testing.assert_close(out, total, rtol=1e-4, atol=1e-3)
    torch.save(seconds, path)


def uniform_lines(sizes: Sequence[float], rounds: int) -> list[BenchLine]:
    """Lines of graphs with uniform random neighbours, the worst case for caches, and the exponent by which
    the cost grows with entries. All sizes take turns."""
    blocks = {
        entries: random_block(entries // DEGREE, entries // DEGREE, DEGREE) for entries in map(int, sizes)
    }
    sides = {}
    for entries, block in blocks.items():
        operator = SparseOperator(block, kernel=NumbaKernel(tilings_of(block)))
        x, out = torch.rand(block.num_columns, WIDTH), torch.empty(block.num_rows, WIDTH)
        sides[str(entries)] = partial(operator.forward, x, out=out)
    seconds = interleaved(sides, rounds)
    lines = []
    for entries, block in blocks.items():
        name = f"uniform neighbours, width {WIDTH}, {entries:>10,} entries"
        lines.append(_line(name, {"ours": seconds[str(entries)]}, block, WIDTH, None))
    medians = [statistics.median(seconds[str(entries)]) for entries in blocks]
    exponent = float(np.polyfit(np.log(list(blocks)), np.log(medians), 1)[0])  # 1 is linear
    grown = f"exponent of its cost over entries, {min(sizes):.0e} to {max(sizes):.0e}"
    return [*lines, BenchLine(grown, exponent, "", target=GROWTH)]
