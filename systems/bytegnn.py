"""ByteGNN: Zheng, Chen, Cheng, Song, Wu, Li, Cheng, Yang, Zhang, "ByteGNN: Efficient Graph Neural Network
Training at Large Scale", VLDB 2022; built here as "Scaling Graph Neural Networks: Innovations in Distributed
and Decentralized Training for Billion-Scale Graphs", sections 4.2 and 5.2, describes it.

Implements neighbour-sampled mini-batch training whose sampling is a graph of tasks, scheduled in two steps:

    a batch: the seeds; for hop h = 1..L tasks that each draw the in-neighbours of some vertices of the
        frontier (NSC, neighbourhood subgraph construction), at their owners; tasks fetch the features of the
        vertices that a hop met first, after it (under `features=once` after the last hop); when all are done,
        the training thread takes the batch
    coarse scheduling: every 5 ms another batch is begun where a score of how idle the worker is, how long ago
        the last one was begun and how far sampling lags behind training reaches sigma (Algorithm 1)
    fine scheduling: of the tasks that are ready those of the oldest batch are run first, and of these the
        cheapest; an NSC task costs the neighbours of its vertices, a fetch its rows times their width

Its words: a DAG is a batch's tasks, the S-Worker the threads, the T-Worker the training thread, and to launch
is to begin a batch (4.2.1, 4.2.2).

Draws, weights, blocks, losses and bytes are those of neighbour sampling in `systems.distdgl`, and its
notation: F_L the seeds, F_{l-1} = F_l and what it draws; R_lj the part of F_l that worker j owns, j another
worker; X_j the part of F_0 that j owns and that is not kept; k_v = min(fan-out, neighbours of v).

Bytes of a worker and step, 4 bytes per id and value:
    sample      4 |R_lj|                                      for every layer l - 1 and owner j
    neighbours  4 |R_lj| + 4 sum of k_v over R_lj  (8 per drawn edge where edges have weights)
    ids         4 |X_j|
    features    4 f_0 |X_j|
    labels      8 per seed that another worker owns (4 + C with C labels per vertex)
    weights     2 (P - 1) 4 |W| over all workers

Decisions
- its partition is `partition=neighbourhood` (Algorithm 2), which has to be given: the default is plain METIS,
  which does not balance training vertices. split: owner: each worker trains the training vertices of its own
  part. `even` as in DistDGL.
- batch size, fan-outs and learning rate are not given: those of DGL's example, as in `distdgl`.
- a task takes up to `task` vertices, 512, since a task in Python costs as much as many vertices' draws. Its
  cost is the sum of their in-degrees: of a graph whose edges have weights, that of the weights.
- what two seeds' neighbourhoods have in common is drawn and fetched once per batch, as in DistDGL: a hop's
  tasks begin when the hop before is whole. With `dedup=task` every group of `task` seeds is drawn and fetched
  by itself, from the seeds to the inputs, and what two groups have in common is drawn and fetched twice: R_lj
  and X_j are then those of each group, added up. So `order`, `launch` and `threads` change no draw, no loss
  and no byte, `dedup` no draw and no loss, and `task` no byte but under `dedup=task`.
- under `features=once` a row is fetched for the first batch, in the order of batches, that has it as an
  input: so a batch's fetches wait for its own whole structure and for that of the batches before it. Under
  `refetch` they wait for their own hop alone.
- Algorithm 1 divides by the number Q of batches that wait, which may be 0; here it is Q + 1. With `inflight`,
  batches that are begun and not made count in Q too. T_gap is in milliseconds and sigma 500, both ours: with
  idle cores, T_sample = T_train and no batch waiting a batch is begun every 5 ms, the polling interval.
  C_util is of this worker, its CPU seconds over its share of the cores. Until both means are known T_sample /
  T_train is 1 (always, where an epoch has one step). T_sample counts what a batch waits for threads and,
  under `once`, for its turn.
- threads: the worker's share of the cores, at least 1, beside the training thread.
- the parameter server is an all-reduce, which gives the same sums under BSP.
- what is made ahead is counted in the step that uses it. Threads go on while the run is evaluated.
- evaluation is exact and sees the whole graph, as for every system.
Departures: by default (`features=once`) what has been pulled is kept, where the paper has no cache and
fetches in every batch (`refetch`). By default (`dedup=batch`, `task=512`) a hop's tasks begin when the whole
hop before is done. Nearest to the paper's DAG, in which each sampled vertex has an NSC task of its own and
its fetch begins when that is done, is `dedup=task task=1 features=refetch`: each seed has one NSC task per
hop and waits for no other seed's. A batch that the training thread asks for is begun at once, where Algorithm
1 would begin it only when the score reaches sigma again. A worker's own rows are gathered, and blocks made
tensors, in the training thread; the partition's default mends Algorithm 2's ties and order (`literal=true` is
as printed); supervised training alone; graph store, samplers and trainer of a machine are threads of one
worker, so that remote requests are reads of mapped memory on one host; the order of network requests is that
of the tasks that make them.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from harness.base.bounds import number, word
from harness.comm.pulls import Mapped, Purpose, Read, together
from harness.core.batches import Sampled
from harness.core.system import without_effect
from systems.parts.feature_cache import FEATURES, in_order
from systems.parts.neighbours import Chosen, Expander, hop_key
from systems.parts.sampled import Drawn, SampledBatches
from systems.parts.tasks import Dag, Scheduler, tell

NSC, FETCH = "nsc", "fetch"  # what a task does


@dataclass
class Chain:
    """Seeds that are drawn and fetched by themselves: those of a batch, or under `dedup=task` of one task.

    frontier  [n] names of the hop that is being drawn
    parts     by task what its vertices drew, in the order of the frontier
    undone    tasks of the hop that are not done
    drawn     by hop that is done: its frontier, and what the vertices of that drew
    """

    frontier: np.ndarray
    parts: list[Chosen | None] = field(default_factory=list)
    undone: int = 0
    drawn: list[tuple[np.ndarray, Chosen]] = field(default_factory=list)


@dataclass
class Making:
    """A batch that is being made, of `chains`; `unfinished` of them have hops left.

    found    its blocks, by hop
    inputs   [q] the names of its inputs
    reads    what its tasks have read from other workers
    pulled   the names and the features that its fetches have brought
    """

    epoch: int
    step: int
    seeds: np.ndarray
    total: int
    chains: list[Chain]
    unfinished: int
    found: list[Sampled] = field(default_factory=list)
    inputs: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    reads: list[Read] = field(default_factory=list)
    pulled: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


@dataclass
class Bytegnn(SampledBatches):
    """Beside the knobs of `SampledBatches`:

    order     which ready task is run: "dag": of the oldest batch the cheapest | "fifo"
    launch    which batches are begun: "score" (Algorithm 1) | "fixed": `prefetch` ahead
    sigma     the score at which another is begun
    inflight  true: batches that are begun and not made count as waiting
    prefetch  batches that are begun ahead under launch=fixed
    dedup     what is drawn and fetched once: what a "batch" has in common, or what the seeds of a "task" have
    task      vertices per task; under dedup=task seeds per task
    threads   threads that run tasks; null: the worker's share of the cores
    """

    split: str = word("owner", "even")
    order: str = word("dag", "fifo")
    launch: str = word("score", "fixed")
    sigma: float = number(500.0)
    inflight: bool = False
    prefetch: int = number(4, 0, 1000)
    dedup: str = word("batch", "task")
    task: int = number(512, 1)
    threads: int | None = number(None, 1, 256)

    def traits(self):
        common = super().traits()
        other = ["prefetch"] if self.launch == "score" else ["sigma", "inflight"]
        why = f"under system.launch={self.launch} it says nothing of which batches are begun"
        return replace(common, ineffective=common.ineffective + without_effect(self, other, why))

    def access(self, own):
        return Mapped(self.comm, own, "system=distdgl system.service=exchange")

    def setup(self, context):
        super().setup(context)
        self.local = threading.local()  # each thread's expander, which has a scratch array
        self.lock = threading.Lock()
        # Under features=once: the vertices whose rows a batch fetches or has fetched, by name; the fetches
        # of batches whose turn has not come; and the number of the batch whose turn is next.
        self.claimed = np.zeros(len(self.names.ids), bool)
        self.whole: dict[int, Callable[[], None]] = {}  # by number, of batches whose structure is there
        self.turn = -1
        self.scheduler: Scheduler[Making] = Scheduler(
            self.comm,
            self.begin,
            self.first,
            self.seeds.steps,
            context.epochs,
            order=self.order,
            launch=self.launch,
            depth=self.prefetch,
            sigma=self.sigma,
            inflight=self.inflight,
            threads=self.threads,
        )
        context.closing.callback(self.scheduler.close)

    # -- a batch's tasks --

    def begin(self, number: int, epoch: int, step: int) -> Making:
        """A batch before any of its tasks: its seeds, as one chain or under `dedup=task` as one per task."""
        if self.turn < 0:  # the first batch of the run, or after a checkpoint was loaded
            self.turn = number
            self.claimed = self.kept.slot >= 0
        seeds, total = self.seeds.of(epoch, step)
        chains = [Chain(each) for each in (self.split_up(seeds) if self.dedup == "task" else [seeds])]
        return Making(epoch, step, seeds, total, chains, len(chains))

    def first(self, dag: Dag[Making]) -> None:
        """A batch's first tasks: to draw for its seeds and, under refetch, to fetch their features."""
        self.scheduler.hold(dag)  # until its fetches are known
        for chain in dag.work.chains:
            if self.features == "refetch":
                self.fetch(dag, chain, chain.frontier)
            self.draw(dag, chain)

    def split_up(self, names: np.ndarray) -> list[np.ndarray]:
        """At least one part, of at most `task` names each."""
        return np.split(names, range(self.task, len(names), self.task))

    def draw(self, dag: Dag[Making], chain: Chain) -> None:
        """The NSC tasks of the next hop, whose frontier is known."""
        chunks = [chain.frontier] if self.dedup == "task" else self.split_up(chain.frontier)
        chain.parts, chain.undone = [None] * len(chunks), len(chunks)
        for place, chunk in enumerate(chunks):
            cost = int(self.names.degrees[chunk].sum())
            layer = self.num_layers - 1 - len(chain.drawn)
            self.scheduler.task(dag, cost, partial(self.nsc, dag, chain, place, chunk), (NSC, layer))

    def nsc(self, dag: Dag[Making], chain: Chain, place: int, chunk: np.ndarray) -> None:
        """An NSC task: draw for the vertices `chunk`, part `place` of the chain's frontier."""
        batch, expander = dag.work, self.expander()
        hop = len(chain.drawn) + 1
        layer, key = self.num_layers - hop, hop_key(self.seed, batch.epoch, batch.step, hop)
        chain.parts[place] = expander.choose(chunk, key, self.most[hop - 1], layer)
        with self.lock:
            batch.reads += self.local.beside.take_reads()
            chain.undone -= 1
            if chain.undone:
                return
        # The hop's last task joins the draws of all its tasks. In a batch of one chain it makes the hop's
        # block at once; of several chains `join` makes the blocks at the end.
        before = chain.frontier
        chosen = Chosen.joined([part for part in chain.parts if part is not None])
        if len(batch.chains) == 1:
            made, chain.frontier = expander.block(before, chosen)
            batch.found.append(made)
        else:
            chain.frontier = expander.sources(before, chosen)
        chain.drawn.append((before, chosen))
        if self.features == "refetch":
            self.fetch(dag, chain, chain.frontier[len(before) :])
        if hop < self.num_layers:
            self.draw(dag, chain)
            return
        # After the last chain's last hop the structure is whole: all fetches are known, or can be begun.
        with self.lock:
            batch.unfinished -= 1
            if batch.unfinished:
                return
        self.join(batch)
        if self.features == "refetch":
            self.scheduler.release(dag)
        else:
            self.claim(dag)

    def join(self, batch: Making) -> None:
        """Make the batch's blocks of what its chains have drawn; the last of them does. Where several chains
        have expanded a vertex, each drew the same for it."""
        batch.inputs = batch.chains[0].frontier
        if len(batch.chains) == 1:
            return
        batch.inputs = batch.seeds
        for hop in zip(*(chain.drawn for chain in batch.chains)):
            names, first = np.unique(np.concatenate([names for names, _ in hop]), return_index=True)
            chosen = Chosen.joined([chosen for _, chosen in hop])
            places = first[np.searchsorted(names, batch.inputs)]
            made, batch.inputs = self.expander().block(batch.inputs, chosen.of(places))
            batch.found.append(made)

    def claim(self, dag: Dag[Making]) -> None:
        """Fetch, for a batch whose structure is there, the rows that no batch before it fetches. Batches have
        their turn in order: one that is whole early waits for those before it."""

        def fetch() -> None:
            # Each chain fetches all that it lacks, also what another chain of the batch fetches: as under
            # dedup=task chains know nothing of each other.
            missing = [chain.frontier[~self.claimed[chain.frontier]] for chain in dag.work.chains]
            for chain, names in zip(dag.work.chains, missing):
                self.claimed[names] = True
                self.fetch(dag, chain, names)
            self.scheduler.release(dag)

        with self.lock:
            self.whole[dag.number] = fetch
            while self.turn in self.whole:
                self.whole.pop(self.turn)()
                self.turn += 1

    def fetch(self, dag: Dag[Making], chain: Chain, names: np.ndarray) -> None:
        """The tasks that fetch the features of those `names` that are other workers'."""
        remote = names[~self.names.own(names)]
        width = self.own.own["features"].shape[1]
        for chunk in self.split_up(remote) if len(remote) else ():
            run = partial(self.fetch_rows, dag, chunk)
            self.scheduler.task(dag, len(chunk) * width, run, (FETCH, self.num_layers - len(chain.drawn)))

    def fetch_rows(self, dag: Dag[Making], chunk: np.ndarray) -> None:
        """A fetch task: pull the features of the names `chunk`."""
        self.expander()  # makes `local.beside`
        rows = in_order(self.names, self.local.beside, "features", chunk, FEATURES)
        with self.lock:
            dag.work.pulled.append((chunk, rows))
            dag.work.reads += self.local.beside.take_reads()

    def expander(self) -> Expander:
        """This thread's expander, which reads through `local.beside`; both are made on first use."""
        if not hasattr(self.local, "expander"):
            self.local.beside = self.pulls.beside()
            self.local.expander = self.expands(self.local.beside)
        return self.local.expander

    # -- the training thread --

    def structure(self, epoch, step):
        batch = self.scheduler.take(epoch, step)
        reads: list[Read] = []
        if self.pulls is not self.own:  # one operation per hop, the same on every worker for any tasks
            hops = [Purpose("sample", "neighbours", layer) for layer in reversed(range(self.num_layers))]
            now = time.monotonic()
            reads = [together(batch.reads, purpose, self.comm.peers, now) for purpose in [*hops, FEATURES]]
        return Drawn(batch.seeds, batch.total, batch.found, batch.inputs, reads, batch.pulled)

    def after_epoch(self, epoch):
        super().after_epoch(epoch)
        tally = self.scheduler.take_tally()
        taken = max(tally.taken, 1)
        tell(self.recorder, tally.seconds, self.scheduler.running, tally.ahead / taken)
        # An NSC task's layer is that whose block its hop makes; a fetch's, that of the last block made.
        for (kind, layer), spent in sorted(tally.spent.items()):
            self.recorder.metric(f"{kind}_s", sum(spent), layer)
            self.recorder.metric(f"{kind}_tasks", len(spent), layer)
        self.recorder.metric("launches", tally.begun)
        self.recorder.metric("queue", tally.waiting / taken)
