"""How the compiled sparse product goes through columns and entries: which tiling is taken for which product.

A tiling changes the time of a product and none of its bits. Tilings that were measured on this machine
(`harness.core.kernels.tiling_measured`) come as a `Tilings`; what was not measured takes the fixed table
below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.core.kernels.gather import LINE, LINES

AHEAD = 16  # entries
LEAST_ENTRIES, LEAST_COLUMNS = 1 << 19, 1 << 11  # below either a product is done before any choice pays
# Of the shapes that are measured. Columns are half a power of two apart: the choice depends on what fits a
# cache.
COLUMNS, DEGREES = tuple(round(2 ** (k / 2)) for k in range(22, 37)), (32, 512)
GAIN = 0.92  # narrower passes must take at most this much of the time
NEAR, FAR = 1 << 20, 32 << 20  # bytes of packed rows that a core's and a processor's caches hold


@dataclass(frozen=True)
class Tiling:
    """lines   cache lines of a packed row, hence the columns of a pass: one of `gather.LINES`
    ahead   entries that are read ahead
    block   bytes of packed source rows that are taken at a time; 0: all of them
    """

    lines: int
    ahead: int = AHEAD
    block: int = 0

    def block_rows(self, columns: int) -> int:
        """Source rows that are taken at a time; 0 where `columns` of them are no more than that."""
        rows = max(1, self.block // (self.lines * LINE)) if self.block else 0
        return rows if rows < columns else 0


@dataclass(frozen=True)
class Timed:
    """A tiling and the nanoseconds per entry that a pass with it took."""

    tiling: Tiling
    ns: float


def even_lines(lines: int, most: int = LINES[-1]) -> int:
    """Cache lines of a pass over rows of `lines` cache lines: the whole row where `most` allows it, else
    passes of nearly equal size.
    """
    even = -(-lines // -(-lines // most))
    return next(each for each in LINES if each >= even)


def fixed(columns: int, entries: int, lines: int) -> Tiling:
    """The tiling of rows of `lines` cache lines where nothing was measured: narrower as the source outgrows
    the caches.
    """
    if entries < LEAST_ENTRIES or columns * lines * LINE <= NEAR:
        return Tiling(even_lines(lines))
    narrow = even_lines(lines, most=4)
    return Tiling(narrow if columns * narrow * LINE <= FAR else even_lines(lines, most=2))


def shape_class(rows: int, columns: int, entries: int) -> str | None:
    """The measured shape nearest to a block's, "COLUMNSxDEGREE"; None where no choice pays."""
    if entries < LEAST_ENTRIES or columns < LEAST_COLUMNS:
        return None
    return f"{nearest(columns, COLUMNS)}x{nearest(entries / rows, DEGREES)}"


def nearest(value: float, among: Sequence[int]) -> int:
    """The one of `among` whose ratio to `value` is nearest to 1."""
    return min(among, key=lambda each: max(each / value, value / max(each, 1)))


class Tilings:
    """What was measured on this machine, by shape class.

    measured   of each class the fastest tiling of each number of lines; empty: the fixed table
    only       this tiling for every product instead
    """

    def __init__(self, measured: Mapping[str, Sequence[Timed]] | None = None, only: Tiling | None = None):
        self._measured, self._only = dict(measured or {}), only

    @classmethod
    def of_json(cls, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Tilings:
        """What `as_json` gave."""
        return cls({
            name: [Timed(Tiling(row["lines"], row["ahead"], row["block"]), row["ns"]) for row in rows]
            for name, rows in found.items()
        })  # fmt: skip

    def as_json(self) -> dict[str, list[dict[str, Any]]]:
        """{class: [{"lines", "ahead", "block", "ns"}, ...]}"""
        return {
            name: [{**asdict(each.tiling), "ns": round(each.ns, 2)} for each in timed]
            for name, timed in self._measured.items()
        }

    def choose(self, rows: int, columns: int, entries: int, lines: int) -> Tiling:
        """The tiling of a block for rows of `lines` cache lines: the least passes * nanoseconds of a pass, a
        wider one where it is nearly as good.

        Only rows of one line are taken in passes of one: every pass reads all indices again.
        """
        if self._only is not None:
            return self._only
        timed = self._measured.get(shape_class(rows, columns, entries) or "")
        if not timed:
            return fixed(columns, entries, lines)
        whole = even_lines(lines)
        fitting = [each for each in timed if min(whole, 2) <= each.tiling.lines <= whole]
        by_width = sorted(fitting, key=lambda each: -each.tiling.lines)
        best, least = by_width[0].tiling, float("inf")
        for each in by_width:
            ns = -(-lines // each.tiling.lines) * each.ns
            if ns <= GAIN * least:
                best, least = each.tiling, ns
        return best
