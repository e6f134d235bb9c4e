"""Which tiling of the sparse product is fastest on this machine, by a short measurement per shape class.

A product of random neighbours is timed with every tiling in turn, on all cores at once, since they share a
cache, and by their processor time, so that what else the machine does matters little. The tilings that were
found are kept in the cache, once per machine and class, so that no later run measures again.
"""

import functools
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from harness.comm.recorder import cpu_count
from harness.core.kernels.gather import LINE, LINES
from harness.core.kernels.numba_kernel import balanced_bounds, buffer, none, sum_rows
from harness.core.kernels.tiling import AHEAD, Tiling, Tilings, Timed
from harness.data.partition.cache import Cache
from harness.data.partition.shard import Csr

ENTRIES = 1 << 21  # of the product that is timed, at least
REUSED = 16  # entries per source row, at least: going block by block pays where rows are met again
ROUNDS = 3  # of which the fastest counts: what else the machine does can only add
DISTANCES = (AHEAD // 2, AHEAD, 2 * AHEAD)
# Bytes of a block that fits a core's own cache, whose rows are near without being read ahead, and of one that
# fits what cores share.
OWN, SHARED = (1 << 19, 3 << 18), (4 << 20, 16 << 20)
SEGMENT = 2  # entries of an output row per block, in the mean, at least: fewer are not worth going to the row
REVISION = 2  # of what is measured: another one leaves old measurements unused


def tilings_for(cache: Cache, machine: str, classes: Iterable[str]) -> Tilings:
    """The tilings of `machine` for shape classes, measured now where the cache does not hold them yet."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(set(classes)):
        spec = {"machine": machine, "class": name, "revision": REVISION}
        folder = cache.get_or_make("tilings", spec, functools.partial(_measure_into, name))
        found |= json.loads((folder / "tilings.json").read_text())
    return Tilings.of_json(found)


def _measure_into(name: str, folder: Path) -> None:
    columns, degree = map(int, name.split("x"))
    found = Tilings({name: measure(columns, degree)})
    (folder / "tilings.json").write_text(json.dumps(found.as_json(), indent=1))


def measure(columns: int, degree: int, entries: int | None = None) -> list[Timed]:
    """The fastest tiling of each number of lines, of a pass over `columns` source rows and output rows of
    `degree` entries.
    """
    entries = entries or max(ENTRIES, REUSED * columns)
    block = random_block(max(1, entries // degree), columns, degree)
    packed = buffer((columns * LINES[-1] * LINE // 4,), np.dtype(np.float32))
    packed[:] = 1  # pages that were never written to are all the same one
    with ThreadPoolExecutor(cpu_count()) as threads:
        return [_fastest(block, lines, packed, threads) for lines in LINES]


def random_block(rows: int, columns: int, degree: int) -> Csr:
    """`rows` rows of `degree` entries, drawn evenly from the columns, in ascending order."""
    drawn = np.random.default_rng(0).integers(0, columns, (rows, degree), dtype=np.int32)
    drawn.sort(axis=1)
    return Csr(np.arange(rows + 1, dtype=np.int32) * degree, drawn.ravel(), columns)


def _fastest(block: Csr, lines: int, memory: np.ndarray, threads: ThreadPoolExecutor) -> Timed:
    """The fastest tiling of `lines`, timed on the sum alone: packing is a small share of a product and takes
    about the same time for all."""
    packed = memory[: block.num_columns * lines * LINE // 4].reshape(block.num_columns, -1)
    out, partial = np.zeros((2, block.num_rows, packed.shape[1]), np.float32)
    cursor = np.empty(block.num_rows, np.int64)
    bounds, nothing = balanced_bounds(block.indptr, cpu_count()), none(packed.dtype)

    def seconds(first: int, last: int, tiling: Tiling) -> float:
        start = time.thread_time()
        sum_rows(
            first, last, block.indptr, block.indices, nothing, packed, 0, nothing, False, out,
            False, tiling.ahead, tiling.block_rows(block.num_columns), partial, cursor,
        )  # fmt: skip
        return time.thread_time() - start

    def timed(tilings: list[Tiling]) -> dict[Tiling, float]:
        """Nanoseconds of a core per entry of each, measured in turn."""
        least = dict.fromkeys(tilings, float("inf"))
        for _ in range(ROUNDS):
            for tiling in tilings:
                parts = threads.map(functools.partial(seconds, tiling=tiling), bounds[:-1], bounds[1:])
                least[tiling] = min(least[tiling], sum(parts))
        return {tiling: 1e9 * spent / block.num_entries for tiling, spent in least.items()}

    # First how far to read ahead, then whether blocks of source rows are faster still.
    ns = timed([Tiling(lines, ahead) for ahead in DISTANCES])
    best = min(ns, key=ns.__getitem__)
    degree = block.num_entries / block.num_rows
    blocks = [
        tiling
        for size, ahead in [*((size, 0) for size in OWN), *((size, best.ahead) for size in SHARED)]
        if (rows := (tiling := Tiling(lines, ahead, size)).block_rows(block.num_columns))
        and degree * rows / block.num_columns >= SEGMENT
    ]
    if blocks:
        ns |= timed(blocks)
        best = min(ns, key=ns.__getitem__)
    return Timed(best, ns[best])
