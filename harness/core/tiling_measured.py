"""Which tiling of the sparse product is fastest on this machine, by a short measurement per shape class.

A product of random neighbours is timed with every tiling in turn, on one thread and by its processor time, so
that what else the machine does matters little. The tilings that were found are kept in the cache, once per
machine and class, so that no later run measures again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.core.gather import LINE, LINES
from harness.core.numba_kernel import NONE, buffer, sum_rows
from harness.core.tiling import AHEAD, GAIN, Tiling, Tilings, Timed
from harness.partition.cache import Cache
from harness.partition.shard import Csr

ENTRIES = 1 << 18  # of the product that is timed
ROUNDS = 3  # of which the fastest counts: what else the machine does can only add
DISTANCES = (AHEAD // 2, AHEAD, 2 * AHEAD)
BLOCKS = (1 << 20, 4 << 20, 16 << 20)  # bytes: of a core's own cache and of those that cores share
REVISION = 1  # of what is measured: another one leaves old measurements unused


def tilings_for(cache: Cache, machine: str, classes: Iterable[str]) -> Tilings:
    """The tilings of `machine` for shape classes, measured now where the cache does not hold them yet."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(set(classes)):
        spec = {"machine": machine, "class": name, "revision": REVISION}
        folder = cache.get_or_make("tilings", spec, partial(_measure_into, name))
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
    block = random_block(max(1, (entries or ENTRIES) // degree), columns, degree)
    packed = buffer((columns * LINES[-1] * LINE // 4,), np.dtype(np.float32))
    packed[:] = 1  # pages that were never written to are all the same one
    return [_fastest(block, lines, packed) for lines in LINES]


def random_block(rows: int, columns: int, degree: int, seed: int = 0) -> Csr:
    """`rows` rows of `degree` entries, drawn evenly from the columns, in ascending order."""
    drawn = np.random.default_rng(seed).integers(0, columns, (rows, degree), dtype=np.int32)
    drawn.sort(axis=1)
    return Csr(np.arange(rows + 1, dtype=np.int32) * degree, drawn.ravel(), columns)


def _fastest(block: Csr, lines: int, memory: np.ndarray) -> Timed:
    """Of the sum alone: packing is a small share of a product and about the same for all."""
    packed = memory[: block.num_columns * lines * LINE // 4].reshape(block.num_columns, -1)
    out, partial = np.zeros((2, block.num_rows, packed.shape[1]), np.float32)
    cursor = np.empty(block.num_rows, np.int64)

    def timed(tilings: list[Tiling]) -> dict[Tiling, float]:
        """Nanoseconds per entry of each, measured in turn."""
        least = dict.fromkeys(tilings, float("inf"))
        for _ in range(ROUNDS):
            for tiling in tilings:
                start = time.thread_time()
                sum_rows(
                    0, block.num_rows, block.indptr, block.indices, NONE, packed, 0, NONE, False, out, False,
                    tiling.ahead, tiling.block_rows(block.num_columns), partial, cursor,
                )  # fmt: skip
                least[tiling] = min(least[tiling], time.thread_time() - start)
        return {tiling: 1e9 * seconds / block.num_entries for tiling, seconds in least.items()}

    ns = timed([Tiling(lines, ahead) for ahead in DISTANCES])
    best = min(ns, key=ns.__getitem__)
    if blocks := [Tiling(lines, best.ahead, size) for size in BLOCKS if size < packed.nbytes]:
        ns |= timed(blocks)
        best = min(ns, key=ns.__getitem__)
    plain = Tiling(lines)
    best = best if ns[best] <= GAIN * ns[plain] else plain
    return Timed(best, ns[best])
