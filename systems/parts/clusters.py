"""Clusters of a worker's own vertices, and which of them each step takes: every cluster once per epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from harness.base.splitmix import mix_int
from harness.data.graph import Graph
from harness.data.partition.assign import metis
from harness.data.partition.shard import Shard
from systems.parts.seeds import EPOCH_KEY, WORKER_KEY


def metis_clusters(shard: Shard, clusters: int, seed: int) -> np.ndarray:
    """[n] which cluster each of a worker's vertices is in: METIS parts of the edges among them, at most
    `clusters` and numbered without gaps, since METIS may leave some empty."""
    count, edges = min(clusters, shard.num_inner), shard.inner_edges
    if count <= 1:
        return np.zeros(shard.num_inner, np.int64)
    own = Graph(
        shard.graph_name,
        edges.indptr,
        edges.indices,
        shard.features,
        shard.labels,
        shard.num_classes,
        shard.train,
        shard.val,
        shard.test,
        shard.symmetric,
    )
    found: np.ndarray = np.unique(metis(own, count, seed), return_inverse=True)[1].reshape(-1)
    return found


class ClusterBatches:
    """The batches of one worker in the epoch that has begun.

    of     [n] which cluster each of its vertices is in
    train  [n] bool, which of them are training vertices
    seeds  by worker: [its clusters] the training vertices of each
    batch  clusters per step of a worker; None: all of them

    Every epoch shuffles each worker's clusters and cuts them into batches. A batch without training vertices
    is left out, so that the workers' batches of a step are those that each has left.

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
        # Mixed, since torch's generator takes in the low 32 bits only.
        generator = torch.Generator().manual_seed(mix_int(key % 2**64))
        shuffled = torch.randperm(len(seeds), generator=generator).numpy()
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
