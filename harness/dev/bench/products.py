"""Tilings and costs of products in the bench's own process, as `harness.run.products` measures them for a
run. They are measured once per process and not taken from a cache, whose values may come from a quieter
minute."""

import functools
from collections.abc import Iterable, Sequence

from harness.core import order_measured
from harness.core.kernels import tiling_measured
from harness.core.kernels.spmm import NumbaKernel
from harness.core.kernels.tiling import Tilings, Timed, shape_class
from harness.core.order import FIXED, Costs, Order
from harness.data.partition.shard import Csr, Shard

_timed = functools.cache(tiling_measured.measure)


def tilings_of(*blocks: Csr) -> Tilings:
    """The tilings of these blocks' shape classes, and of their adjoints'."""
    shapes = [(block.num_rows, block.num_columns, block.num_entries) for block in blocks]
    shapes += [(columns, rows, entries) for rows, columns, entries in shapes]
    return _tilings({name for shape in shapes if (name := shape_class(*shape))})


def order_of(shard: Shard) -> Order:
    """The order of A X W by what products cost here; by the fixed table for a shard with fewer entries than
    LEAST_ENTRIES, where no choice pays."""
    return Order(costs=_costs() if shard.inner_edges.num_entries >= order_measured.LEAST_ENTRIES else FIXED)


def _tilings(classes: Iterable[str]) -> Tilings:
    found: dict[str, Sequence[Timed]] = {name: _timed(*map(int, name.split("x"))) for name in sorted(classes)}
    return Tilings(found)


@functools.cache
def _costs() -> Costs:
    return order_measured.measure(NumbaKernel(_tilings(order_measured.classes())))
