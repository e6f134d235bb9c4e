"""How fast one core of this machine does each kind of work, timed on the code that runs use for it.

Everything is timed on one thread and by its processor time, so that what else the machine does matters
little; it still shares caches and memory. Every number is a median, with the least and the greatest beside.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from harness.base.machine import cache_bytes
from harness.comm import work
from harness.comm.rows import scatter_add_rows
from harness.comm.work import Work
from harness.core.attention import AttentionEdges, attend
from harness.core.cluster import Rate
from harness.core.dense import adjoint, times_weight
from harness.core.dropout import dropout
from harness.core.kernels.spmm import SparseOperator, make_kernel
from harness.core.kernels.tiling_measured import random_block
from harness.core.quantise import dequantise, quantise

MEGA = 1 << 20
REPEATS, LEAST = 5, 0.03  # of each measurement; more while they have taken less seconds than this


@dataclass(frozen=True)
class Shapes:
    """The shapes at which each kind is measured; the defaults take half a minute. The widest rows are no
    multiple of a cache line of 64 bytes, as most features are.

    widths    of dense and sparse products; of edge softmaxes those up to 64
    sources   how many rows sparse products gather from
    degrees   entries per row of sparse products
    entries   of one sparse product at most
    rows      widths of rows that are dropped from, packed and coded
    bytes     of dense products and of passes
    memory    bytes of the copy that no cache is to hold
    """

    widths: tuple[int, ...] = (4, 16, 64, 256, 600)
    sources: tuple[int, ...] = (1 << 10, 1 << 13, 1 << 17)
    degrees: tuple[int, ...] = (2, 16, 128)
    entries: int = 1 << 20
    rows: tuple[int, ...] = (16, 64, 128, 256, 600)
    bytes: tuple[int, ...] = (MEGA // 4, 4 * MEGA, 64 * MEGA)
    memory: int = 256 * MEGA


class Spread(NamedTuple):
    """Several measurements of one number: their median, the least and the greatest."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def per_second(self, number: float) -> Spread:
        """Of seconds: `number` per second."""
        return Spread(number / self.median, number / self.greatest, number / self.least)


@dataclass
class Speeds:
    """What one core does.

    copied       bytes per second that a copy reads and writes
    multiplied   operations per second of dense products at their fastest
    launch       seconds of an operation on one row, the median over the kinds
    rates        of every kind at every shape
    """

    copied: Spread
    multiplied: Spread
    launch: Spread
    rates: list[Rate] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """One measurement: `run` does all of `does`, whose rate is that of this width, size and degree."""

    kind: str
    width: int
    size: int
    degree: int
    does: Sequence[Work]
    run: Callable[[], object]


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes on one thread meanwhile."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def measure(shapes: Shapes | None = None, told: Callable[[str], object] = lambda _: None) -> Speeds:
    """The speeds of one core. told: called with each kind's name before it is measured."""
    shapes = shapes or Shapes()
    told("memory")
    values = shapes.memory // 4
    copy = timed(partial(torch.empty(values).copy_, torch.ones(values)))
    copied = copy.per_second(2 * shapes.memory)
    told("launches")
    launch = _launch()
    told("dense products")
    between = 4 * cache_bytes(2)
    dense = [(case, timed(case.run, between)) for case in _dense(shapes)]
    fastest = max(taken.per_second(sum(each.flops for each in case.does)) for case, taken in dense)
    found = Speeds(copied, fastest, launch)
    found.rates += [_rate(case, taken, found) for case, taken in dense]
    for name, cases in (
        ("sparse products", _sparse(shapes)),
        ("edge softmaxes", _attention(shapes)),
        ("passes over rows", _passes(shapes)),
    ):
        told(name)
        # A case is made when its turn comes, since each holds tensors of its shape.
        found.rates += [_rate(case, timed(case.run, between), found) for case in cases]
    return found


def _rate(case: Case, taken: Spread, found: Speeds) -> Rate:
    """The efficiency of a case: the seconds that the roofline allows for its work, over the seconds that were
    measured beyond its launches."""
    allowed = sum(
        max(each.flops / found.multiplied.median, (each.read + each.written) / found.copied.median)
        for each in case.does
    )
    launches = len(case.does) * found.launch.median
    # A case that takes hardly longer than its launches says little: at least a tenth of its seconds count.
    median, high, low = (allowed / max(seconds - launches, seconds / 10) for seconds in taken)
    return Rate(
        case.kind, case.width, case.size, case.degree, *(float(f"{x:.4g}") for x in (median, low, high))
    )


def timed(run: Callable[[], object], between: int = 0) -> Spread:
    """Processor seconds of one call, after one that is not counted.

    between   bytes that are written before each call, outside the clock: in an epoch other work comes
              between two calls of one product, and leaves little of its operands in a core's own cache
    """
    run()
    other = torch.zeros(between // 4)
    seconds: list[float] = []
    while len(seconds) < REPEATS or sum(seconds) < LEAST:
        other.add_(1)
        start = time.thread_time()
        run()
        seconds.append(time.thread_time() - start)
    return Spread.of(seconds)


def _launch() -> Spread:
    kernel, one = make_kernel("numba"), torch.ones(1, 1)
    operator = SparseOperator(random_block(1, 1, 1), kernel=kernel)
    index = torch.zeros(1, dtype=torch.int64)
    runs: list[Callable[[], object]] = [
        lambda: one @ one,
        lambda: operator.forward(one),
        lambda: torch.relu(one),
        lambda: one.index_select(0, index),
    ]
    each = [timed(partial(_hundred, run)) for run in runs]
    return Spread(*(statistics.median(ends) / 100 for ends in zip(*each)))


def _hundred(run: Callable[[], object]) -> None:
    """Run it a hundred times: processor time is too coarse for one."""
    for _ in range(100):
        run()


def _dense(shapes: Shapes) -> Iterator[Case]:
    """A layer's product and its two gradients, between a wide side and one of each width."""
    for width, size in product(shapes.widths, shapes.bytes):
        wide = max(128, width)
        n = max(1, size // (4 * (wide + width)))
        x, weight, g = torch.ones(n, wide), torch.ones(wide, width), torch.ones(n, width)
        does = [work.dense(*sides, 4) for sides in ((n, wide, width), (wide, n, width), (n, width, wide))]
        yield Case("dense", width, size, 0, does, partial(_three, x, weight, g))


def _three(x: torch.Tensor, weight: torch.Tensor, g: torch.Tensor) -> None:
    times_weight(x, weight, fixed=True)
    adjoint(x, g)
    times_weight(g, weight.t(), fixed=True)


def _sparse(shapes: Shapes) -> Iterator[Case]:
    """Random neighbours; as many rows as sources, or fewer where there would be too many entries."""
    kernel = make_kernel("numba")
    for sources, degree in product(shapes.sources, shapes.degrees):
        block = random_block(min(sources, max(1, shapes.entries // degree)), sources, degree)
        scales = np.ones(block.num_rows, np.float32), np.ones(block.num_columns, np.float32)
        operator = SparseOperator(block, *scales, kernel=kernel)
        for width in shapes.widths:
            x, out = torch.ones(sources, width), torch.empty(block.num_rows, width)
            does = work.sparse(block.num_rows, sources, block.num_entries, width, 4, row=True, column=True)
            yield Case("sparse", width, sources, degree, [does], partial(operator.forward, x, out))


def _attention(shapes: Shapes) -> Iterator[Case]:
    """Four heads, forward and backward."""
    heads, degree, cpu = 4, shapes.degrees[len(shapes.degrees) // 2], torch.device("cpu")
    for sources in shapes.sources[:-1]:
        edges = AttentionEdges(random_block(sources, sources, degree), None, cpu)
        for width in (width for width in shapes.widths if width <= 64):
            y = torch.ones(sources, heads, width // heads, requires_grad=True)
            half = torch.ones(sources, heads)
            does = work.attention(sources, sources, edges.num_edges, heads, width, 4)
            yield Case("attention", width, sources, 0, does, partial(_attended, edges, y, half))


def _attended(edges: AttentionEdges, y: torch.Tensor, half: torch.Tensor) -> None:
    attend(edges, y, half, half).backward(torch.ones_like(y))


def _passes(shapes: Shapes) -> Iterator[Case]:
    """Compiled loops over rows are measured at each width: short rows may not be worth a vector."""
    draws = np.random.default_rng(0)
    for size in shapes.bytes:
        for width in shapes.rows:
            n = max(8, size // (4 * width))
            x, out, total = torch.ones(n, width), torch.empty(n, width), torch.zeros(n, width)
            where, ids = torch.randperm(n), torch.arange(n, dtype=torch.int32)
            wire = quantise(x, 8)
            packed = [work.pack(n, width, 4), work.pack(n, width, 4, added=True)]
            coded = [work.code(n, width, x.nbytes, wire.nbytes), work.code(n, width, wire.nbytes, x.nbytes)]
            for does, run in (
                ([work.drop(n, width, 4)], partial(dropout, x, ids, 0.5, 1)),
                (packed, partial(_packed, x, out, total, where)),
                (coded, partial(_coded, x)),
            ):
                yield Case(does[0].kind, width, 2 * size, 0, does, run)
        # Passes whose speed does not depend on the width.
        chances = np.full(size // 8, 0.5)
        sampled = work.sample(len(chances) // 2, len(chances))
        yield Case("stream", 0, 2 * size, 0, [work.stream(n, width, 4, 1, 1)], partial(torch.relu, x))
        yield Case("sample", 0, 2 * size, 0, [sampled], partial(_sampled, draws, chances))


def _packed(x: torch.Tensor, out: torch.Tensor, total: torch.Tensor, where: torch.Tensor) -> None:
    torch.index_select(x, 0, where, out=out)
    scatter_add_rows(total, where, out)


def _coded(x: torch.Tensor) -> None:
    dequantise(quantise(x, 8), x.shape[1], 8, x.dtype)


def _sampled(draws: np.random.Generator, chances: np.ndarray) -> None:
    np.flatnonzero(draws.random(len(chances)) < chances)
