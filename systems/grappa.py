"""Grappa: weight gradients alone, and a second part that rotates.

Xu, Siebenbrunner, Bindschaedler, "Grappa: Gradient-Only Communication for Scalable GNN Training", arXiv
2602.01872, 2026. Worker i of P holds its own part and, in epoch t, another one:

    second(i, t) = (i + 1 + (floor(t / period) mod (P - 1))) mod P                     none where P = 1
    layer 0      takes all in-edges of both parts, with the features of their sources
    layer l > 0  takes the in-edges whose sources are in one of the two parts; others are left out
    loss         the sum over part i's training vertices, divided by the number of all training vertices
    gradient     the sum over workers of c_i times that of worker i's loss

With d the in-degree of a vertex and k the in-edges of it whose sources are in the two parts, alpha_i is the
mean of k / d over part i's training vertices, and the correction of worker i's gradients is

    c_i = alpha_i (scalar),   1 + shrink (alpha_i - 1) (shrunk),   1 (none)

Notation: N(i, t) the rows of the two parts and their in-neighbours; n and E the vertices and in-edges of a
part that a worker gets; |W| parameters.

Bytes, 4-byte floats and integers:
    weights    2 (P - 1) 4 |W| per epoch, over all workers
    features   4 f_0 for each row of N(i, t) that is not in N(i, t - 1), of worker i, at first not in part i
    structure  8 E + 4 n when a second part is new (12 E + 4 n where edges have weights)

Decisions
- degrees are the whole graph's: nothing takes the place of an edge that is left out.
- k / d is 1 for a vertex without in-edges, and alpha_i 1 for a worker without training vertices.
- features are exact, and none is kept for longer than it is needed: a rotation drops those of other workers'
  vertices that only the second part before it needed.
- who sends which features follows from the partition, so nothing is asked for. Vertices' ids and degrees, and
  the sizes of parts, are gathered before training, uncounted.
- all rows of both parts are computed in every layer.
- an epoch is one step. A resumed run fetches again what it held, outside the clock.
- evaluation is exact and sees the whole graph, as for every system.
Departures: the paper's full text was not at hand. alpha is from its public code, the form of its shrunk
correction and 0.5 are guesses, and its chunks are random where parts here are the partition's.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from harness.base.bounds import ROUNDS, number, word
from harness.comm.flight import HaloPlan
from harness.comm.pulls import Own
from harness.comm.work import moved
from harness.core.batches import Batch, BatchSystem, Block
from harness.core.evaluate import targets
from harness.core.features import dense, given
from harness.core.inputs import StaticInput
from harness.core.system import Traits, gradients, without_effect
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import Chosen, Expander, Names

NONE = -1  # in place of a second part


@dataclass
class Grappa(BatchSystem):
    """period      epochs between two rotations
    correction  what a worker's gradients are multiplied by: "scalar", "shrunk" or "none" (they stay)
    shrink      what is left of the scalar correction where it is shrunk: 0: none of it, 1: all
    """

    period: int = number(50, 1, ROUNDS)
    correction: str = word("scalar", "shrunk", "none")
    shrink: float = number(0.5, 0, 1)

    refuses: ClassVar = replace(
        BatchSystem.refuses,
        wire="sends no rows but features, which are exact",
        needed_rows="computes all rows of two parts",
        combine="",
        features_wire="",
    )
    smaller: ClassVar[str] = "more workers"

    def traits(self):
        idle = [] if self.correction == "shrunk" else ["shrink"]
        why = f"system.correction={self.correction} shrinks nothing"
        return Traits(ineffective=without_effect(self, idle, why))

    def steps(self):
        return 1

    def setup(self, context):
        super().setup(context)
        shard, comm = self.shard, self.comm
        self.keeps_rows, self.total = context.keeps_rows, int(shard.split_counts[0])
        self.names = Names.gathered(comm, shard, np.asarray(shard.degrees))
        self.first = int(self.names.bounds[comm.rank])
        self.expander = Expander(self.names, Own(comm, {}))
        own = lists_of(shard, local=False)
        counts = np.diff(own["starts"], axis=1)[:, 0].astype(np.int32)
        self.own = Chosen(counts, counts, own["lists"])
        self.edges = comm.gathered(np.array([len(own["lists"])]))  # [P] in-edges of every part
        train = np.asarray(shard.train)
        self.order = np.concatenate([np.flatnonzero(train), np.flatnonzero(~train)])  # seeds come first
        self.x = dense(given(shard.features, self.device), self.device)
        self.labels = targets(shard.labels, self.device)[context.train_rows]
        ends = np.cumsum(shard.send_counts)[:-1]
        self.read = np.split(np.asarray(shard.send_rows), ends)  # by part: own rows that it has in its halo
        # State: the second part, the names of other workers' vertices whose features are here, ascending, and
        # these features.
        self.second: int | None = None
        self.held, self.store = np.empty(0, np.int32), self.x[:0]
        self.batch: Batch | None = None
        self.correct = 1.0

    def second_of(self, worker: int, epoch: int) -> int:
        """second(i, t): the second part of a worker in an epoch; NONE for one worker alone."""
        size = self.comm.size
        return (worker + 1 + epoch // self.period % (size - 1)) % size if size > 1 else NONE

    def make_batch(self, epoch, step):
        second = self.second_of(self.comm.rank, epoch)
        if second != self.second:
            self.rotate(second)
        self.recorder.metric("correction", self.correct)
        return self.batch

    def rotate(self, second: int) -> None:
        """Take `second` as the second part. All workers rotate together."""
        inside = self.recorder.inside
        # The in-edges of both parts: the own ones are here, the others come from the second part's worker.
        with inside("rest", "subgraph"):
            chosen, frontier = self.own.of(self.order), (self.order + self.first).astype(np.int32)
            if second != NONE:
                more, names = self.structure(second)
                chosen, frontier = Chosen.joined([chosen, more]), np.concatenate([frontier, names])
            found, sources = self.expander.block(frontier, chosen)
        x = self.rows(second, sources)
        with inside("rest", "blocks"):
            first, deeper = Block(found, self.adjacency, 0), Block(found.alone(), self.adjacency, 1)
        # The correction: k / d of the own training vertices, which are the first rows.
        self.second, seeds, n = second, len(self.labels), len(frontier)
        near, far = (np.diff(block.indptr)[:seeds] for block in (found.inner, found.halo))
        shares = np.divide(near, near + far, out=np.ones(seeds), where=near + far > 0)
        alpha = float(shares.mean()) if seeds else 1.0
        self.correct = {"scalar": alpha, "shrunk": 1 + self.shrink * (alpha - 1), "none": 1.0}[
            self.correction
        ]
        self.batch = None
        if seeds:
            outside = x[n:] if first.halo is not None else None
            static = StaticInput(first, x[:n], outside, self.adjacency.kernel, self.keeps_rows)
            blocks = [first, *[deeper] * (self.num_layers - 1)]
            self.batch = Batch(self.x, blocks, self.labels, self.total, static=static)

    def combine(self, parameters):
        self.combiner.sum(gradients(parameters), self.correct)

    def structure(self, second: int) -> tuple[Chosen, np.ndarray]:
        """The in-edges of part `second`, and its vertices' names. Each part's own worker sends them: the ends
        of each edge, the bits of its weight where it has one, and the vertices' ids."""
        shard, rank, size = self.shard, self.comm.rank, self.comm.size
        ends = np.repeat(np.arange(shard.num_inner, dtype=np.int32), self.own.counts)
        message = np.concatenate([ends, self.own.edges.ravel(), np.asarray(shard.inner)])
        columns = 1 + self.own.edges.shape[1]
        send, receive = np.zeros(size, int), np.zeros(size, int)
        reader = (2 * rank - second) % size  # its second part is this one: all shift by as much
        send[reader] = len(message)
        receive[second] = columns * self.edges[second] + shard.sizes[second]
        with self.comm.for_once():
            told = torch.from_numpy(message).view(-1, 1).to(self.device)
            arrived = self.comm.exchange_now(told, send.tolist(), receive.tolist(), 0, "forward", "structure")
        edges, n = int(self.edges[second]), int(shard.sizes[second])
        self.recorder.work(moved(arrived))
        found = arrived[:, 0].cpu().numpy()
        counts = np.bincount(found[:edges], minlength=n).astype(np.int32)
        names = (np.arange(n) + self.names.bounds[second]).astype(np.int32)
        self.names.ids[names] = found[columns * edges :]
        return Chosen(counts, counts, found[edges : columns * edges].reshape(edges, columns - 1)), names

    def rows(self, second: int, sources: np.ndarray) -> torch.Tensor:
        """The features [q, f0] of the names `sources`. Those that are not here are fetched; of other workers'
        vertices, those of `sources` are kept from now on and no others."""
        rank, size, before = self.comm.rank, self.comm.size, self.second
        own = self.names.own(sources)
        remote = np.sort(sources[~own])
        missing = np.setdiff1d(remote, self.held, assume_unique=True)
        shift = second - rank
        rows = [self.sent(p, (p + shift) % size, before) for p in range(size)]
        receive = np.bincount(self.names.owners(missing), minlength=size).tolist()
        sent = torch.from_numpy(np.concatenate(rows)).long().to(self.device)
        self.plans = [HaloPlan(sent, [len(each) for each in rows], receive)]
        with self.comm.for_once():
            arrived = self.input_halo(self.x) if size > 1 else self.x[:0]
        with self.recorder.inside("rest", "gather", 0):
            here = np.concatenate([self.held, missing])
            order = np.argsort(here)
            places = order[np.searchsorted(here, remote, sorter=order)]
            self.held = remote
            self.store = torch.cat([self.store, arrived]).index_select(0, self._on_device(places))
            at = np.where(own, sources - self.first, len(self.x) + np.searchsorted(remote, sources))
            x = torch.cat([self.x, self.store]).index_select(0, self._on_device(at))
            self.recorder.work(moved(self.store), moved(x, of=len(self.x) + len(self.store)))
        return x

    def sent(self, reader: int, second: int, before: int | None) -> np.ndarray:
        """Own rows [k], ascending, that worker `reader` needs for part `second` and did not have for its part
        before that; `before` is this worker's part before, None at first."""
        rank, none = self.comm.rank, self.read[self.comm.rank]
        if reader == rank:
            return none
        had = none
        if before is not None:
            had = np.union1d(self.read[reader], self._rows_for((reader + before - rank) % self.comm.size))
        return np.setdiff1d(np.union1d(self.read[reader], self._rows_for(second)), had, assume_unique=True)

    def _rows_for(self, part: int) -> np.ndarray:
        """The own rows that a part needs: all, if it is the own part, else those in its halo."""
        return np.arange(len(self.x)) if part == self.comm.rank else self.read[part]

    def _on_device(self, places: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(places).long().to(self.device)

    def state_dict(self):
        return {"second": self.second}

    def load_state_dict(self, state):
        if state["second"] is not None:
            self.rotate(state["second"])
