"""Which training vertices each worker takes in each step: every one at most once per epoch, over all workers,
and exactly once where no batch is dropped."""

from __future__ import annotations

import numpy as np
import torch

from harness.base.errors import InputError
from harness.base.splitmix import mix_int

EPOCH_KEY, WORKER_KEY = 1_000_003, 65_537


class Seeds:
    """The batches of one worker, the same on every worker that asks about another.

    training  [t] names of all training vertices, ascending
    ids       [t] their global ids
    counts    [P] how many of them each worker owns
    split     "even": equal ranges of `training`, one per worker | "owner": each worker its own
    batches   "worker": each worker shuffles its own list and takes `batch` per step | "global": the list of
              all, by global ids, is shuffled and cut into steps of P `batch`, of which each worker takes
              those it trains
    batch     seeds per worker and step; None: all in one step
    drop_last a batch with fewer seeds than the others is left out: with "worker" each worker's own last one,
              with "global" the last step

    InputError where that leaves none, on all workers alike.
    """

    def __init__(
        self,
        training: np.ndarray,
        ids: np.ndarray,
        counts: np.ndarray,
        rank: int,
        seed: int,
        split: str,
        batches: str,
        batch: int | None,
        drop_last: bool = False,
    ):
        parts, total = len(counts), len(training)
        shares = np.full(parts, total // parts) + (np.arange(parts) < total % parts)
        self.bounds = np.concatenate([[0], np.cumsum(shares if split == "even" else counts)])
        self.training, self.rank, self.seed, self.together = training, rank, seed, batches == "global"
        # Where the shuffle is of all, it knows no partition: places in `training` by global id.
        self.line = np.argsort(ids) if self.together else np.arange(len(training))
        lists = np.array([total]) if self.together else np.diff(self.bounds)  # what is shuffled, and cut
        most = int(lists.max())
        self.size = max(1, most if batch is None else batch * (parts if self.together else 1))
        self.lists = lists // self.size * self.size if drop_last and batch is not None else lists
        self.steps = max(1, -(-int(self.lists.max()) // self.size))
        self.total = int(self.lists.sum())  # seeds of an epoch, on all workers
        if total and not self.total:
            whose = "all workers together have" if self.together else "a worker has at most"
            raise InputError(
                f"system.drop_last=true leaves no batch of system.batch={batch}: {whose} {most} training"
                f" vertices, and a whole batch takes {self.size}; give a smaller system.batch"
            )
        self._shuffled: tuple[int, np.ndarray] = -1, training

    def of(self, epoch: int, step: int) -> tuple[np.ndarray, int]:
        """This worker's seeds of a step [b], as names, and how many all workers have in it."""
        if self._shuffled[0] != epoch:
            self._shuffled = epoch, self._shuffle(epoch)
        places = self._shuffled[1][step * self.size : (step + 1) * self.size]
        if not self.together:
            left = self.lists - step * self.size
            return self.training[places], int(np.clip(left, 0, self.size).sum())
        mine = (places >= self.bounds[self.rank]) & (places < self.bounds[self.rank + 1])
        return self.training[places[mine]], len(places)

    def _shuffle(self, epoch: int) -> np.ndarray:
        """Places in `training`, in the order in which they are taken."""
        first, last = (0, len(self.training)) if self.together else self.bounds[self.rank : self.rank + 2]
        key = (self.seed * EPOCH_KEY + epoch) * WORKER_KEY + (0 if self.together else 1 + self.rank)
        # Mixed, since torch's generator takes in the low 32 bits only.
        generator = torch.Generator().manual_seed(mix_int(key % 2**64))
        taken = self.lists[0 if self.together else self.rank]
        return self.line[first + torch.randperm(last - first, generator=generator).numpy()[:taken]]
