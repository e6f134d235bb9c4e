"""Features of the vertices that a batch takes in: own rows, rows of other workers' vertices that are kept,
and those that are pulled."""

from collections import Counter
from collections.abc import Sequence

import numba
import numpy as np

from harness.comm.pulls import Pulls, Purpose
from harness.comm.work import Work, moved, pack
from harness.data.partition.shard import Csr
from systems.parts.neighbours import Names
from systems.parts.seeds import permutation

FEATURES = Purpose("ids", "features", 0)
Pieces = Sequence[tuple[np.ndarray, np.ndarray]]  # names [q] and their rows [q, F]


def in_order(names: Names, pulls: Pulls, what: str, wanted: np.ndarray, purpose: Purpose) -> np.ndarray:
    """The rows of every worker's array `what` for the names `wanted` [q], in their order."""
    order, asked = names.by_owner(wanted)
    parts = pulls.rows(what, asked, purpose)
    if len(parts) == 1:
        return parts[0]
    rows = np.empty((len(wanted), *parts[0].shape[1:]), parts[0].dtype)
    rows[order] = np.concatenate(parts)
    return rows


class KeptRows:
    """Features by name; what has been kept is never pulled again.

    pulls   whose array `features` has the rows
    counts   of the latest call of `rows`: "inputs", of them "remote"; and rows "pulled", each pull counted
    """

    def __init__(self, names: Names, pulls: Pulls):
        self.names, self.pulls = names, pulls
        own = pulls.own["features"]
        self.low = int(names.bounds[names.rank])
        self.slot = np.full(len(names.ids), -1, np.int32)  # of a kept row in `store`
        self.store = np.empty((0, own.shape[1]), own.dtype)
        self.taken = 0  # rows of `store` that are kept
        self.counts: Counter[str] = Counter()

    def rows(
        self, wanted: np.ndarray, purpose: Purpose, keep: bool, pulled: Pieces | None = None
    ) -> np.ndarray:
        """Features [q, F] of the names `wanted`, which are unique; those that must be pulled are kept where
        `keep` says so.

        pulled   the missing ones and their rows, some perhaps more than once, where they have been pulled
                 already; None: they are pulled here
        """
        own = self.pulls.own["features"]
        # What neither is the worker's own nor is kept is put into the store first, pulled here or before.
        near = self.names.own(wanted)
        remote = wanted[~near]
        missing = remote[self.slot[remote] < 0]
        before, count = self.taken, len(missing)
        if pulled is None:
            self.keep(missing, purpose)
        else:
            names = np.concatenate([missing[:0], *(names for names, _ in pulled)])
            count = len(names)
            # Threads pulled them in whatever order.
            each, first = np.unique(names, return_index=True)
            assert len(each) == len(missing), "every row that is missing has been pulled"
            self._put(each, np.concatenate([own[:0], *(rows for _, rows in pulled)])[first])
        # All rows are then gathered from the own table and the store.
        rows = np.empty((len(wanted), own.shape[1]), own.dtype)
        if isinstance(own, Csr):
            rows[near], rows[~near] = own[wanted[near] - self.low], self.store[self.slot[remote]]
        else:
            _gather(wanted, self.low, own, self.slot, self.store, rows)
        if not keep:
            self.slot[missing], self.taken = -1, before
        self.counts = Counter(inputs=len(wanted), remote=len(remote), pulled=count)
        return rows

    def work(self, rows: np.ndarray) -> list[Work]:
        """The work of the latest call of `rows`, which returned `rows`: they were gathered, and what was
        pulled was joined, ordered and kept."""
        pulled = pack(self.counts["pulled"], rows.shape[1], rows.itemsize)
        table = len(self.pulls.own["features"]) + self.taken
        return [moved(rows, of=table), *([pulled] * 3 if pulled.rows else [])]

    def keep(self, wanted: np.ndarray, purpose: Purpose) -> None:
        """Pull and keep the rows `wanted` of other workers' vertices, which are not kept yet. Collective."""
        self._put(wanted, in_order(self.names, self.pulls, "features", wanted, purpose))

    def _put(self, wanted: np.ndarray, pulled: np.ndarray) -> None:
        first, self.taken = self.taken, self.taken + len(wanted)
        if self.taken > len(self.store):
            larger = np.empty((max(self.taken, 2 * len(self.store)), *self.store.shape[1:]), self.store.dtype)
            larger[:first] = self.store[:first]
            self.store = larger
        self.store[first : self.taken] = pulled
        self.slot[wanted] = np.arange(first, self.taken, dtype=np.int32)

    def names_kept(self) -> np.ndarray:
        """The names of the kept rows [kept] int32, in the order in which they are stored."""
        kept = np.flatnonzero(self.slot >= 0).astype(np.int32)
        return kept[np.argsort(self.slot[kept])]


@numba.njit(cache=True, nogil=True)
def _gather(wanted, low, own, slot, store, rows):
    # Value by value: rows given whole take twice as long, by the loop that numba makes of them.
    for q in range(len(wanted)):
        at = wanted[q] - low
        if 0 <= at < len(own):
            for column in range(rows.shape[1]):
                rows[q, column] = own[at, column]
        else:
            kept = slot[wanted[q]]
            for column in range(rows.shape[1]):
                rows[q, column] = store[kept, column]


def kept_ids(names: Names, share: float, score: np.ndarray | None, seed: int) -> np.ndarray:
    """Names of the share of other workers' vertices with the highest score [V], ties by name; where there is
    no score, random ones."""
    everyone = np.arange(len(names.ids), dtype=np.int32)
    remote = everyone[~names.own(everyone)]
    most = round(share * len(remote))
    if score is None:
        return np.sort(remote[permutation(len(remote), seed * 65_537 + names.rank + 1).numpy()[:most]])
    return np.sort(remote[np.argsort(-score[remote].astype(np.int64), kind="stable")[:most]])
