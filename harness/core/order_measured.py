"""What sparse and dense products cost on this machine, by a short measurement that the cache keeps: once per
machine and kernel.

Products of random neighbours are timed on one thread and by its processor time, so that what else the machine
does matters little. They have the tilings of a run's products with the same number of source rows and the
same degree.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch

from harness.core.dense import adjoint, times_weight
from harness.core.kernels.gather import LINE
from harness.core.kernels.spmm import Kernel, NumbaKernel, SparseOperator
from harness.core.kernels.tiling import LEAST_ENTRIES as LEAST_TILED
from harness.core.kernels.tiling import Tilings, shape_class
from harness.core.kernels.tiling_measured import random_block
from harness.core.order import Costs, Shape, SparseCost
from harness.data.partition.cache import Cache

SOURCES = 1 << 10, 1 << 13, 1 << 16
WIDTHS = 16, 64, 256, 600  # the widest as rows of features are: no whole number of cache lines
# For each degree that tilings are chosen by, the entries per row of two products: their difference in time is
# the cost of entries, what then remains of the smaller one's time the cost of rows.
DEGREES = {32: (4, 36), 512: (64, 576)}
ENTRIES = 1 << 19  # of the larger sparse product, about
ROWS, FEATURES = 1 << 14, 128  # of the dense product
ROUNDS, SECONDS = 5, 0.1  # at least; the fastest counts: what else the machine does can only add
LEAST = 0.001  # nanoseconds: noise must not make a cost 0 or less
LEAST_ENTRIES = 1 << 16  # of a shard: below, either order is done before a choice pays
REVISION = 6  # of what is measured: another one leaves old measurements unused


def classes() -> list[str]:
    """The shape classes of the measured products, by which their tilings are chosen."""
    found = (shape_class(*_stands_for(sources, degree)) for sources in SOURCES for degree in DEGREES)
    return [name for name in found if name is not None]


def _stands_for(sources: int, degree: int) -> Shape:
    """The least product of this many source rows and this degree for which a choice of tiling pays."""
    return Shape(LEAST_TILED // degree, sources, LEAST_TILED)


def costs_for(cache: Cache, machine: str, kernel: Kernel) -> Costs:
    """The costs of `machine`, measured now where the cache does not hold them yet."""
    spec = {"machine": machine, "kernel": kernel.name, "revision": REVISION}
    folder = cache.get_or_make("costs", spec, partial(_measure_into, kernel))
    return Costs.of_json(json.loads((folder / "costs.json").read_text()))


def _measure_into(kernel: Kernel, folder: Path) -> None:
    (folder / "costs.json").write_text(json.dumps(measure(kernel).as_json(), indent=1))


def measure(kernel: Kernel) -> Costs:
    """The costs of float32 products by `kernel` on the CPU."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cases = product(DEGREES, SOURCES, WIDTHS)
        sparse = [_sparse(kernel, sources, width, degree) for degree, sources, width in cases]
        return Costs(sparse, {width: _dense(width) for width in WIDTHS})
    finally:
        torch.set_num_threads(threads)


def _sparse(kernel: Kernel, sources: int, width: int, degree: int) -> SparseCost:
    least, most = DEGREES[degree]
    rows, x = min(sources, ENTRIES // most), torch.ones(sources, width)
    column, row, out = np.ones(sources, np.float32), np.ones(rows, np.float32), torch.empty(rows, width)
    if isinstance(kernel, NumbaKernel):
        lines = -(-4 * width // LINE)
        kernel = NumbaKernel(Tilings(only=kernel.tilings.choose(*_stands_for(sources, degree), lines)))
    products = [
        SparseOperator(random_block(rows, sources, each), row, column, kernel=kernel)
        for each in (least, most)
    ]
    few, many = _nanoseconds([partial(each.forward, x, out) for each in products])
    entry = max((many - few) / (rows * (most - least)), LEAST * width)
    each_row = max((few - least * rows * entry) / (rows + sources), LEAST * width)
    return SparseCost(sources, width, round(entry / width, 5), round(each_row / width, 5), degree)


def _dense(width: int) -> float:
    """Nanoseconds per multiply-add: the mean of a layer's product and its two gradients."""
    x, weight, g = torch.ones(ROWS, FEATURES), torch.ones(FEATURES, width), torch.ones(ROWS, width)
    ahead, back = partial(times_weight, x, weight, True), partial(times_weight, g, weight.t(), True)
    taken = _nanoseconds([ahead, partial(adjoint, x, g), back])
    return round(sum(taken) / (len(taken) * ROWS * FEATURES * width), 6)


def _nanoseconds(works: Sequence[Callable[[], object]]) -> list[float]:
    """The least time of each of `works` over several rounds, in which they take turns."""
    for work in works:
        work()  # compiled, and its pages touched
    least, rounds, begun = [float("inf")] * len(works), 0, time.thread_time()
    while rounds < ROUNDS or time.thread_time() - begun < SECONDS:
        for place, work in enumerate(works):
            start = time.thread_time()
            work()
            least[place] = min(least[place], time.thread_time() - start)
        rounds += 1
    return [1e9 * seconds for seconds in least]
