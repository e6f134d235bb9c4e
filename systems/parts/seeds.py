"""Which vertices each worker takes in each step: training vertices, each at most once per epoch over all
workers, and exactly once where no batch is dropped; or clusters of its own, each once per epoch."""

from collections.abc import Sequence

import numpy as np
import torch

from harness.base.errors import InputError
from harness.base.splitmix import mix_int
from harness.data.graph import Graph
from harness.data.partition.assign import Metis
from harness.data.partition.shard import Shard

EPOCH_KEY, WORKER_KEY = 1_000_003, 65_537


def permutation(count: int, key: int) -> torch.Tensor:
    """The numbers below `count` in an order that follows from `key`, of any size  [count] int64."""
    # Mixed, since torch's generator takes in the low 32 bits only, in which keys are not all different.
    return torch.randperm(count, generator=torch.Generator().manual_seed(mix_int(key % 2**64)))


class Seeds:
    """The batches of training vertices that one worker takes. All workers divide these in the same way.

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

    InputError where drop_last leaves no batch, on all workers alike.
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
        # A shuffle of all seeds must not depend on the partition: it takes them by global id. `line` holds
        # places in `training`.
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
        taken = self.lists[0 if self.together else self.rank]
        return self.line[first + permutation(last - first, key).numpy()[:taken]]


def metis_clusters(shard: Shard, clusters: int, seed: int) -> np.ndarray:
    """[n] which cluster each of a worker's vertices is in: METIS parts of the edges among them, at most
    `clusters` and numbered without gaps, since METIS may leave some empty."""
    count, edges = min(clusters, shard.num_inner), shard.inner_edges
    if count <= 1:
        return np.zeros(shard.num_inner, np.int64)
    known = shard.features, shard.labels, shard.num_classes, shard.train, shard.val, shard.test
    own = Graph(shard.graph_name, edges.indptr, edges.indices, *known, shard.symmetric)
    found: np.ndarray = np.unique(Metis().vertex_owners(own, count, seed), return_inverse=True)[1].reshape(-1)
    return found


class ClusterBatches:
    """The batches of one worker in the epoch that has begun.

    of     [n] which cluster each of its vertices is in
    train  [n] bool, which of them are training vertices
    seeds  by worker: [its clusters] the training vertices of each
    batch  clusters per step of a worker; None: all of them

    Every epoch shuffles each worker's clusters and cuts them into batches. A batch without training vertices
    is left out; step k takes the k-th batch that each worker has left.

    steps  of the epoch; before the first, how many an epoch has at most
    """

    def __init__(
        self,
        of: np.ndarray,
        train: np.ndarray,
        seeds: Sequence[np.ndarray],
        rank: int,
        seed: int,
        batch: int | None,
    ):
        self.seeds, self.rank, self.seed = seeds, rank, seed
        self.train = np.asarray(train)
        self.sizes = [max(1, len(each) if batch is None else batch) for each in seeds]
        self.steps = max(1, *(-(-len(each) // size) for each, size in zip(seeds, self.sizes)))
        ends = np.cumsum(np.bincount(of, minlength=len(seeds[rank])))
        self.members = np.split(np.argsort(of, kind="stable"), ends[:-1])  # by cluster
        self.own: list[np.ndarray] = []  # by step, the clusters of this worker
        self.totals: list[int] = []  # by step, the training vertices of all workers

    def begin(self, epoch: int) -> None:
        """Shuffle for an epoch. Each worker shuffles for all, so nothing is sent to agree on `totals`."""
        everybodys = [self._batches(epoch, worker) for worker in range(len(self.seeds))]
        self.own = everybodys[self.rank]
        self.steps = max(1, *(len(batches) for batches in everybodys))
        self.totals = [0] * self.steps
        for seeds, batches in zip(self.seeds, everybodys):
            for step, clusters in enumerate(batches):
                self.totals[step] += int(seeds[clusters].sum())

    def _batches(self, epoch: int, worker: int) -> list[np.ndarray]:
        seeds, size = self.seeds[worker], self.sizes[worker]
        key = (self.seed * EPOCH_KEY + epoch) * WORKER_KEY + 1 + worker
        shuffled = permutation(len(seeds), key).numpy()
        batches = np.split(shuffled, range(size, len(seeds), size))
        return [clusters for clusters in batches if seeds[clusters].any()]

    def rows(self, step: int) -> tuple[np.ndarray, int]:
        """This worker's vertices in a step [b] int32, training vertices first, and how many these are; none
        where it has no batch left."""
        if step >= len(self.own):
            return np.empty(0, np.int32), 0
        rows = np.sort(np.concatenate([self.members[cluster] for cluster in self.own[step]]))
        train = self.train[rows]
        return np.concatenate([rows[train], rows[~train]]).astype(np.int32), int(train.sum())
