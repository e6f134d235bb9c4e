"""Threads beside the training that make mini-batches ahead of it. ByteGNN's scheduling: a batch is a graph of
tasks, and threads run those that are ready (section 4.2.2 of the text that `systems.bytegnn` names). Without
it, which is the default, one thread makes one batch after the other.

Coarse (Algorithm 1): which batches are begun. Every 5 ms another one is begun if

    T_gap f(C_util) balance >= sigma        balance = T_sample / (T_train (Q + 1))
    f(C) = 101 - exp(C / c),  c = 100 / ln 101, so that f(0) = 100 and f(100) = 0

T_gap the milliseconds since the last was begun, C_util the per cent of its cores that this worker used since
the thread looked last, T_sample and T_train the mean seconds that a batch took to be made and to be trained
on, Q the batches that are made and wait (the printed formula divides by Q, which is 0 where none waits).

Fine: which ready task is run: of the oldest batch, and of its tasks the cheapest.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.names import BATCH, SAMPLER, SAMPLER_AHEAD, SAMPLER_THREADS
from harness.comm.recorder import Recorder, cpu_count
from harness.comm.service import ServiceLost

Work = TypeVar("Work")
Kind = tuple[str, int]  # what a task does, and for which layer
Spent = dict[Kind, list[float]]  # by kind: the CPU seconds of each task

POLL = 0.005  # seconds between two looks of the coarse scheduler
C = 100 / math.log(101)


def idle(used: float) -> float:
    """f(C_util), of a share in per cent: 100 where nothing is used, 0 where everything is."""
    return 101 - math.exp(min(max(used, 0.0), 100.0) / C)


def score(gap: float, used: float, sample: float, train: float, waiting: int) -> float:
    """Algorithm 1's score. gap in milliseconds, used in per cent; sample and train in the same unit, since
    only their ratio counts."""
    return gap * idle(used) * sample / (train * (waiting + 1))


def tell(recorder: Recorder, seconds: float, threads: int, ahead: float) -> None:
    """Record for an epoch the CPU seconds of the threads that made its batches beside the training, how many
    threads there are, and how many batches they begin beyond the one that is asked for."""
    recorder.metric(SAMPLER, seconds)
    recorder.metric(SAMPLER_THREADS, threads)
    recorder.metric(SAMPLER_AHEAD, ahead)


@dataclass
class Mean:
    """A running mean."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else 0.0


@dataclass
class Dag(Generic[Work]):
    """The tasks of one batch. `left` counts those that are known and not done, and the holds on the batch."""

    number: int  # counted over epochs
    work: Work
    left: int = 0
    begun: float = field(default_factory=time.monotonic)
    spent: Spent = field(default_factory=lambda: defaultdict(list))
    error: Exception | None = None
    made: bool = False


@dataclass
class Tally:
    """What has happened since the tally was last taken.

    begun     batches that were begun
    waiting   batches that were made when one was taken, summed over those taken
    ahead     batches that were begun beyond the one taken, summed likewise
    taken     batches that were taken
    spent     CPU seconds of the tasks that made these, by kind
    """

    begun: int = 0
    waiting: int = 0
    ahead: int = 0
    taken: int = 0
    spent: Spent = field(default_factory=lambda: defaultdict(list))

    @property
    def seconds(self) -> float:
        """CPU seconds of all tasks."""
        return sum(map(sum, self.spent.values()))


class Scheduler(Generic[Work]):
    """Makes one batch after another in threads, and hands them out in order.

    begin    (number, epoch, step) -> what the batch's tasks work on; called in order
    first    adds a batch's first tasks by `task`; they add others
    steps    per epoch; epochs: of the run
    order    "dag": of the oldest batch the cheapest task | "fifo": as they became ready
    launch   "score": Algorithm 1 | "fixed": `depth` batches ahead of the one that is asked for
    inflight batches that are begun and not made count in Q too
    threads  that run tasks; None: this worker's share of the cores
    """

    def __init__(
        self,
        comm: Comm,
        begin: Callable[[int, int, int], Work],
        first: Callable[[Dag[Work]], None],
        steps: int,
        epochs: int,
        *,
        depth: int,
        order: str = "fifo",
        launch: str = "fixed",
        sigma: float = 0.0,
        inflight: bool = False,
        threads: int | None = 1,
    ):
        self.comm, self.begin, self.first, self.steps = comm, begin, first, steps
        self.order, self.launch, self.depth = order, launch, depth
        self.sigma, self.inflight = sigma, inflight
        self.end = steps * epochs
        self.cores = max(1, cpu_count() // comm.size)
        self.changed = threading.Condition(threading.RLock())
        self.ready: list[tuple[tuple[float, ...], Dag[Work], Callable[[], None], Kind]] = []
        self.dags: dict[int, Dag[Work]] = {}  # begun and not taken
        self.next = self.expected = -1  # the next that is begun, and that is taken; -1 before the first
        self.added = 0
        self.closed, self.stopped = False, threading.Event()
        self.sample, self.train, self.tally = Mean(), Mean(), Tally()
        self.launched = self.looked = self.taken_at = 0.0
        self.used_until = 0.0
        self.running = threads or self.cores
        run = [threading.Thread(target=self._run, name="sampler") for _ in range(self.running)]
        coarse = [threading.Thread(target=self._coarse, name="launcher")] if launch == "score" else []
        self.threads = run + coarse
        for thread in self.threads:
            thread.daemon = True
            thread.start()

    # -- the training thread --

    def take(self, epoch: int, step: int) -> Work:
        """What has been made for a step; waits until it is. Steps are taken in order, the first being any.
        Where making it failed with a MemoryError or an InputError, that is raised; else ServiceLost, with one
        sentence."""
        number = epoch * self.steps + step
        with self.changed:
            now = time.monotonic()
            if self.expected < 0:
                self.next = self.expected = number
                self.looked, self.used_until = now, time.process_time()
            elif step:
                self.train.add(now - self.taken_at)  # between epochs there is more than training
            assert number == self.expected, "steps are taken in order"
            # Begin what is to be begun by now, then wait for this step's batch.
            self.expected += 1
            self.tally.taken += 1
            self.tally.waiting += sum(dag.made for dag in self.dags.values())
            self._launch_until(number + 1)  # whoever is asked for is not kept waiting by a score
            if self.launch == "fixed":
                self._launch_until(min(number + 1 + self.depth, self.end))
            self.tally.ahead += self.next - self.expected
            dag = self.dags[number]
            with self.comm.recorder.inside("wait", BATCH):
                self.changed.wait_for(lambda: dag.made or dag.error is not None)
            if dag.error is not None:
                if isinstance(dag.error, InputError | MemoryError):
                    raise dag.error
                told = " ".join(f"{type(dag.error).__name__}: {dag.error}".split())
                raise ServiceLost(
                    f"worker {self.comm.rank}: the thread that samples failed in epoch {epoch + 1}, step"
                    f" {step + 1} ({told}); the same command goes on from the last checkpoint"
                ) from dag.error
            del self.dags[number]
            for kind, spent in dag.spent.items():
                self.tally.spent[kind] += spent
            self.taken_at = time.monotonic()
            return dag.work

    def take_tally(self) -> Tally:
        with self.changed:
            tally, self.tally = self.tally, Tally()
            return tally

    def close(self) -> None:
        """End the threads. What has been begun and is not taken is left."""
        with self.changed:
            self.closed = True
            self.stopped.set()
            self.ready.clear()
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()

    # -- tasks --

    def task(self, dag: Dag[Work], cost: float, run: Callable[[], None], kind: Kind = ("task", -1)) -> None:
        """Add a task that is ready."""
        with self.changed:
            dag.left += 1
            self.added += 1
            turn: tuple[float, ...] = (self.added,)
            if self.order == "dag":
                turn = dag.number, cost, self.added
            heapq.heappush(self.ready, (turn, dag, run, kind))
            self.changed.notify_all()

    def hold(self, dag: Dag[Work]) -> None:
        """Keep the batch from being made before `release`, even if no task of it is left."""
        with self.changed:
            dag.left += 1

    def release(self, dag: Dag[Work]) -> None:
        """End a hold or a task; the batch is made when none is left."""
        with self.changed:
            dag.left -= 1
            if not dag.left:
                dag.made = True
                self.sample.add(time.monotonic() - dag.begun)
                self.changed.notify_all()

    def _run(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.ready or self.closed)
                if self.closed:
                    return
                _, dag, run, kind = heapq.heappop(self.ready)
            began = time.thread_time()
            try:
                run()
            except Exception as error:
                with self.changed:
                    dag.error = dag.error or error
                    self.changed.notify_all()
                continue  # the batch is never made, and `take` raises the error
            with self.changed:
                dag.spent[kind].append(time.thread_time() - began)
                self.release(dag)

    # -- which batches are begun --

    def _launch_until(self, end: int) -> None:
        while self.next < end:
            number, self.next = self.next, self.next + 1
            dag = self.dags[number] = Dag(number, self.begin(number, *divmod(number, self.steps)))
            self.hold(dag)
            self.first(dag)
            self.release(dag)
            self.tally.begun += 1
            self.launched = time.monotonic()

    def _coarse(self) -> None:
        while not self.stopped.wait(POLL):
            with self.changed:
                if 0 <= self.next < self.end and self._due():
                    try:
                        self._launch_until(self.next + 1)
                    except Exception as error:  # `take` raises it once this batch is asked for
                        number = self.next - 1
                        self.dags.setdefault(number, Dag(number, cast(Work, None))).error = error
                        return

    def _due(self) -> bool:
        now, cpu = time.monotonic(), time.process_time()
        passed = now - self.looked
        used = 100 * (cpu - self.used_until) / (passed * self.cores) if passed > 0 else 100.0
        self.looked, self.used_until = now, cpu
        waiting = sum(dag.made or self.inflight for dag in self.dags.values())
        # Before both are known they count as equal.
        known = self.sample.count and self.train.count
        sample, train = (self.sample.value, self.train.value) if known else (1.0, 1.0)
        return score(1000 * (now - self.launched), used, sample, max(train, 1e-9), waiting) >= self.sigma
