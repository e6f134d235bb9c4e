"""Which side of A X W is multiplied first: (A X) W adds up rows of width f_in. A (X W) adds up rows of width
f_out, but has to multiply the halo's rows by W too.

The cheaper order is chosen from what the products cost on the machine at hand. The order changes the last
bits of a product, so a run keeps the costs that it began with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from harness.core.kernels.tiling import nearest

ORDERS = ("auto", "transform", "aggregate")


class Passes(NamedTuple):
    """How often an epoch runs a layer's products.

    dense         the product with W
    transformed   the product with A, where X W comes first: rows of width f_out
    aggregated    the product with A, where A X comes first: rows of width f_in
    """

    dense: int
    transformed: int
    aggregated: int


HIDDEN = Passes(3, 2, 2)  # forward, and backward for the weight and the input
# The features have no gradient: (A X)^T delta is all that is left of the backward pass where A X is first.
FEATURES = Passes(2, 2, 1)
GATHERED = Passes(1, 1, 1)  # `propagate_gathered` has the same backward pass in either order


class Shape(NamedTuple):
    """The shape of a sparse block."""

    rows: int
    columns: int
    entries: int


@dataclass(frozen=True)
class SparseCost:
    """The cost of a sparse product of rows `width` wide that gathers from `sources` rows, in nanoseconds per
    column: `entry` for every entry, `row` for every row that is read or written once.

    degree   entries per row of the products that it stands for; 0: any number
    """

    sources: int
    width: int
    entry: float
    row: float
    degree: int = 0


class Costs:
    """What products cost on one thread: the given costs of the nearest degree, interpolated over the
    logarithms of widths and source rows.

    sparse   every combination of the widths, numbers of source rows and degrees that it names
    dense    {width: nanoseconds per multiply-add} by the narrower side of the weight
    """

    def __init__(self, sparse: Iterable[SparseCost], dense: Mapping[int, float]):
        self._given = sorted(sparse, key=lambda each: (each.degree, each.sources, each.width))
        self._degrees = sorted({each.degree for each in self._given})
        self._dense = dict(sorted(dense.items()))
        self._sources = sorted({each.sources for each in self._given})

    def dense(self, rows: int, f_in: int, f_out: int) -> float:
        """Nanoseconds of X W for X [rows, f_in]."""
        return rows * f_in * f_out * _between(min(f_in, f_out), list(self._dense), list(self._dense.values()))

    def sparse(self, block: Shape, width: int) -> float:
        """Nanoseconds of A X for X [columns, width]."""
        degree = nearest(max(1, block.entries) / max(1, block.rows), self._degrees)
        entry, row = (
            _between(
                block.columns, self._sources, [self._at(name, size, width, degree) for size in self._sources]
            )
            for name in ("entry", "row")
        )
        return width * (block.entries * entry + (block.rows + block.columns) * row)

    def _at(self, name: str, sources: int, width: int, degree: int) -> float:
        given = [each for each in self._given if (each.sources, each.degree) == (sources, degree)]
        return _between(width, [each.width for each in given], [getattr(each, name) for each in given])

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Costs:
        """What `as_json` gave."""
        return cls([SparseCost(*each) for each in found["sparse"]], dict(found["dense"]))

    def check(self) -> None:
        """Raises ValueError or TypeError where these costs give a product no possible time."""
        if not all(0 <= each < math.inf for each in (self.dense(1, 1, 1), self.sparse(Shape(1, 1, 1), 1))):
            raise ValueError("a product takes no time that there is")

    def as_json(self) -> dict[str, list[list[float]]]:
        """{"sparse": [[sources, width, entry, row, degree], ...], "dense": [[width, ns], ...]}."""
        return {
            "sparse": [[each.sources, each.width, each.entry, each.row, each.degree] for each in self._given],
            "dense": [[width, ns] for width, ns in self._dense.items()],
        }


def _between(at: float, places: list[int], values: list[float]) -> float:
    return float(np.interp(math.log(max(at, 1)), np.log(places), values))


# Where nothing was measured: one core of a server processor with AVX-512.
FIXED = Costs(
    [
        SparseCost(1 << 10, 16, 0.025, 0.8),
        SparseCost(1 << 10, 64, 0.025, 0.45),
        SparseCost(1 << 10, 256, 0.03, 0.4),
        SparseCost(1 << 13, 16, 0.03, 0.7),
        SparseCost(1 << 13, 64, 0.04, 0.6),
        SparseCost(1 << 13, 256, 0.09, 1.2),
        SparseCost(1 << 16, 16, 0.07, 0.7),
        SparseCost(1 << 16, 64, 0.16, 1.2),
        SparseCost(1 << 16, 256, 0.16, 1.4),
    ],
    {16: 0.019, 64: 0.013, 256: 0.014},
)


@dataclass(frozen=True)
class Order:
    """choice   "transform" or "aggregate" first in every layer, or "auto": the cheaper by `costs`"""

    choice: str = "auto"
    costs: Costs = FIXED

    def transform_first(
        self, blocks: Iterable[Shape], rows: int, halo_rows: int, f_in: int, f_out: int, passes: Passes
    ) -> bool:
        """Whether A (X W) is cheaper than (A X) W over a training epoch.

        blocks      of A, each with `rows` rows: so many are multiplied by W [f_in, f_out] in (A X) W
        halo_rows   how many rows more are multiplied by W in A (X W)
        """
        if self.choice != "auto":
            return self.choice == "transform"
        return _cheaper_transformed(self.costs, tuple(blocks), rows, halo_rows, f_in, f_out, passes)


@lru_cache(maxsize=1024)  # every layer asks in every epoch, and sampled blocks are others each time
def _cheaper_transformed(
    costs: Costs, blocks: tuple[Shape, ...], rows: int, halo_rows: int, f_in: int, f_out: int, passes: Passes
) -> bool:
    transformed = passes.dense * costs.dense(rows + halo_rows, f_in, f_out)
    transformed += passes.transformed * sum(costs.sparse(shape, f_out) for shape in blocks)
    aggregated = passes.dense * costs.dense(rows, f_in, f_out)
    aggregated += passes.aggregated * sum(costs.sparse(shape, f_in) for shape in blocks)
    return transformed < aggregated
