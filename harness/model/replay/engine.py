"""The event simulation: workers follow their steps, operations send messages, messages share links.

A message can leave when both its ends have posted the operation (where the platform is eager, its sender) and
the messages that it needs have arrived. Its first byte arrives after the path's latency, the others at the
rate that max-min fairness gives it (`harness.model.replay.flows`). An operation is through for a worker when
the messages to it have arrived and those from it have left, which is at the same moment. A worker has its
device to itself; where the platform says how many cores a host has, threads share them
(`harness.model.replay.cores`). In the result all times are seconds from the first epoch on.
"""

import heapq
import math
from dataclasses import dataclass, field, replace

from harness.base.errors import InputError
from harness.comm.names import STRAGGLE
from harness.model.replay.collectives import Message, messages
from harness.model.replay.cores import Cores, Making
from harness.model.replay.flows import Flows
from harness.model.replay.platform import Platform
from harness.model.replay.program import ALONE, Aside, Begin, Operation, Post, Program, Take, Wait, Work


@dataclass(slots=True)
class Sent:
    """A message on its way.

    needs     how many posts and messages it still waits for
    met       the last posting that it has depended on so far, itself or through other messages
    ready     when the last that it waited for was there
    cause     what that was: the worker that posted, or ~k for the operation's message k
    through   whether its own bytes have arrived
    arrived   when they and those that it hands on had; infinite before
    """

    message: Message
    needs: int
    met: float = 0.0
    ready: float = math.nan
    cause: int = 0
    through: bool = False
    arrived: float = math.inf


@dataclass(slots=True)
class Going:
    """An operation under way or through.

    posted, done   by worker, when it posted the operation, and when the operation was through for it
    met            by worker, the moment at which the last worker that its part depends on had posted; known
                   once the operation is through for it
    last           by worker, the message (its place in `sent`) that was waited for longest
    """

    operation: Operation
    sent: list[Sent]
    pending: dict[int, int]  # messages by worker that have not arrived
    waiting: dict[int, list[int]]  # by worker, the messages that cannot leave before it has posted
    followers: dict[int, list[int]]  # by message: those that come after it or along with it
    posted: dict[int, float] = field(default_factory=dict)
    done: dict[int, float] = field(default_factory=dict)
    met: dict[int, float] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Segment:
    """A piece of a worker's time.

    kind        "compute", "rest" or "wait"
    operation   the number of the operation that a wait is for; -1: none
    """

    kind: str
    name: str
    layer: int
    start: float
    end: float
    operation: int = -1


@dataclass
class Timeline:
    """What came of a replay. `segments[worker][i]` and `begins[worker][i]` are of the program's epoch i; of
    an asynchronous run of the worker's round i."""

    program: Program
    platform: Platform
    going: dict[int, Going]
    segments: list[list[list[Segment]]]
    begins: list[list[float]]
    merged: bool = False  # whether flows were put together since there were so many (`Flows`)

    def ends(self, worker: int, index: int) -> float:
        """When a worker ends its epoch (or round) of this place, in seconds."""
        own = self.segments[worker][index]
        return own[-1].end if own else self.begins[worker][index]


def simulate(program: Program, platform: Platform, broadcast: str = "ring") -> Timeline:
    """Run the program to its end. InputError where workers wait for what never comes.

    broadcast   how broadcasts are made: "ring" or "direct"
    """
    return _Simulation(program, platform, broadcast).run()


class _Simulation:
    def __init__(self, program: Program, platform: Platform, broadcast: str):
        self.program, self.platform, self.broadcast = program, platform, broadcast
        workers = range(program.workers)
        self.at = [0] * program.workers  # each worker's next step
        self.clock = [0.0] * program.workers
        self.waits: list[int | None] = [None] * program.workers
        self.meeting: list[int] = []  # workers that wait for the next epoch to begin
        self.going: dict[int, Going] = {}
        self.segments: list[list[list[Segment]]] = [[] for _ in workers]
        self.begins: list[list[float]] = [[] for _ in workers]
        self.flows = Flows(platform.capacity)
        # Without threads that share cores, or make batches, work needs no events of its own.
        cores = platform.cores if program.clock == "cpu" else math.inf
        shared = bool(program.beside) or math.isfinite(cores)
        self.cores = Cores([cores] * (max(platform.pools) + 1)) if shared else None
        # By name of the job: (worker, batch; -1: its own work, -2: its transport's).
        self.jobs: list[tuple[int, int]] = []
        self.making = [Making(beside) for beside in program.beside]
        self.takes = [-1] * program.workers  # the batch that each waits for
        self.carried: list[tuple[int, int]] = []  # (operation, message) by name of its flow
        # (when, order, worker or -1, operation, message): a worker goes on, or a message's first byte arrives
        self.events: list[tuple[float, int, int, int, int]] = []
        self.order = 0

    def run(self) -> Timeline:
        for worker in range(self.program.workers):
            self._later(0.0, worker)
        while True:
            # What happens next is the earliest of an event, the end of a flow and the end of a job. Of those
            # at one moment jobs end first, then flows.
            event = self.events[0][0] if self.events else math.inf
            flow = self.flows.next_end()
            job = self.cores.next_end() if self.cores is not None else math.inf
            now = min(event, flow, job)
            if now == math.inf:
                break
            if self.cores is not None and job == now:
                self._job_ends(*self.jobs[self.cores.end()], now)
                continue
            if flow == now:
                for name in self.flows.end():
                    self._through(*self.carried[name], now)
                continue
            _, _, worker, operation, message = heapq.heappop(self.events)
            if worker >= 0:
                self._go_on(worker, now)
            else:
                self._first_byte(operation, message, now)
        self._check_over()
        merged = self.flows.merged
        return Timeline(self.program, self.platform, self.going, self.segments, self.begins, merged)

    def _later(self, when: float, worker: int = -1, operation: int = -1, message: int = -1) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, worker, operation, message))

    # -- workers --

    def _go_on(self, worker: int, now: float) -> None:
        """Follow the worker's steps until it waits, or until its own time is ahead of the others'."""
        steps = self.program.steps[worker]
        time = now
        while self.at[worker] < len(steps):
            step = steps[self.at[worker]]
            if isinstance(step, Work) and (self.cores is None or step.name == STRAGGLE):
                end = time + step.seconds
                self.segments[worker][-1].append(Segment(step.kind, step.name, step.layer, time, end))
                time = end
            elif time > now:  # what follows touches others: in the order of time
                self._later(time, worker)
                return
            elif isinstance(step, Work):
                self.clock[worker] = now
                self._job(worker, -1, step.seconds, self.platform.device_cores, now)
                return
            elif isinstance(step, Aside):
                if self.cores is not None:
                    self._job(worker, -2, step.seconds, 1, now)
            elif isinstance(step, Take):
                batch = self.making[worker].ask()
                self._make(worker, now)
                if batch not in self.making[worker].made:
                    self.takes[worker], self.clock[worker] = batch, now
                    return
                self._note(worker, now, now)
            elif isinstance(step, Post):
                self._post(worker, step.operation, now)
            elif isinstance(step, Wait):
                done = now if step.operation is None else self.going[step.operation].done.get(worker)
                if done is None:
                    self.waits[worker], self.clock[worker] = step.operation, now
                    return
                time = self._waited(worker, step, now, now)
            else:
                self.at[worker] += 1
                self._meet(worker, now)
                return
            self.at[worker] += 1

    def _note(self, worker: int, since: float, now: float) -> None:
        """Note the work that a worker has done, or its wait for a batch."""
        step = self.program.steps[worker][self.at[worker]]
        assert isinstance(step, Work | Take)
        kind = step.kind if isinstance(step, Work) else "wait"
        self.segments[worker][-1].append(Segment(kind, step.name, step.layer, since, now))

    # -- cores --

    def _job(self, worker: int, batch: int, seconds: float, threads: int, now: float) -> None:
        assert self.cores is not None
        self.jobs.append((worker, batch))
        self.cores.add(self.platform.pools[worker], len(self.jobs) - 1, seconds, threads, now)

    def _make(self, worker: int, now: float) -> None:
        """Begin the batches that the threads beside a worker may begin."""
        making = self.making[worker]
        for batch in making.begin():
            self._job(worker, batch, making.beside.batches[batch], 1, now)

    def _job_ends(self, worker: int, batch: int, now: float) -> None:
        if batch == -2:
            return
        if batch >= 0:
            self.making[worker].end(batch)
            self._make(worker, now)
            if batch != self.takes[worker]:
                return
            self.takes[worker] = -1
        self._note(worker, self.clock[worker], now)
        self.at[worker] += 1
        self._go_on(worker, now)

    def _waited(self, worker: int, step: Wait, since: float, now: float) -> float:
        """Note a worker's wait for an operation. Returns the moment at which the worker goes on."""
        end = now + step.tail
        operation = -1 if step.operation is None else step.operation
        self.segments[worker][-1].append(Segment("wait", step.name, step.layer, since, end, operation))
        return end

    def _meet(self, worker: int, now: float) -> None:
        """An epoch begins when all workers have come to it; a round of an asynchronous run at once."""
        self.meeting.append(worker)
        if self.program.updates is None and len(self.meeting) < self.program.workers:
            return
        for each in sorted(self.meeting):
            begin = self.program.steps[each][self.at[each] - 1]
            assert isinstance(begin, Begin)
            self.begins[each].append(now + begin.late)
            self.segments[each].append([])
            self._later(now + begin.late, each)
        self.meeting = []

    def _check_over(self) -> None:
        for worker, number in enumerate(self.waits):
            if number is not None:
                operation = self.program.operations[number]
                absent = sorted(set(operation.parts) - self.going[number].posted.keys())
                raise InputError(
                    f"worker {worker} would wait for ever for {operation.display_name()},"
                    f" which workers {absent}"
                    " never began: the trace has not all of its workers' operations; run it again"
                )
        if self.meeting:
            raise InputError(
                f"workers {sorted(self.meeting)} begin an epoch that the others do not: the trace has not all"
                " of its epochs; run it again"
            )

    # -- operations --

    def _begin(self, number: int) -> Going:
        operation = self.program.operations[number]
        made = messages(operation, self.program.workers, self.broadcast)
        if operation.route == "broadcast":  # at the rate of broadcasts
            size = self.platform.broadcast_size
            made = [replace(each, size=size(each.source, each.target, each.size)) for each in made]
        pending = dict.fromkeys(operation.parts, 0)
        followers: dict[int, list[int]] = {}
        waiting: dict[int, list[int]] = {}
        sent = []
        for place, message in enumerate(made):
            # A message waits for its sender's post (eager) or for both ends', and for the messages that it
            # needs. The peer of an operation in ALONE never posts.
            ends = {message.source} if self.platform.eager else {message.source, message.target}
            if operation.route in ALONE:
                ends = {message.source, message.target} & operation.parts.keys()
            before = [*message.after, *([message.along] if message.along >= 0 else [])]
            for end in ends:
                waiting.setdefault(end, []).append(place)
            for each in before:
                followers.setdefault(each, []).append(place)
            sent.append(Sent(message, len(ends) + len(before)))
            for end in {message.source, message.target} & operation.parts.keys():
                pending[end] += 1
        return Going(operation, sent, pending, waiting, followers)

    def _post(self, worker: int, number: int, now: float) -> None:
        if number not in self.going:
            self.going[number] = self._begin(number)
        going = self.going[number]
        going.posted[worker] = going.met[worker] = now
        for place in going.waiting.get(worker, ()):
            self._less(number, place, now, worker)
        if not going.pending[worker]:
            self._done(number, worker, -1, now)

    def _less(self, number: int, place: int, now: float, cause: int) -> None:
        """One thing less that a message waits for; with the last one it leaves."""
        sent = self.going[number].sent
        each = sent[place]
        each.needs -= 1
        each.met = max(each.met, now if cause >= 0 else sent[~cause].met)
        if each.needs == 0:
            each.ready, each.cause = now, cause
            latency = self.platform.path(each.message.source, each.message.target).latency
            self._later(now + latency, -1, number, place)

    def _first_byte(self, number: int, place: int, now: float) -> None:
        going = self.going[number]
        each = going.sent[place]
        links = self.platform.path(each.message.source, each.message.target).links
        for follower in going.followers.get(place, ()):
            if going.sent[follower].message.along == place:
                self._less(number, follower, now, ~place)
        if links and each.message.size:
            self.carried.append((number, place))
            self.flows.add(len(self.carried) - 1, links, each.message.size, now)
        else:
            self._through(number, place, now)

    def _through(self, number: int, place: int, now: float) -> None:
        """A message's own bytes are there; it has arrived once what it hands on has."""
        going = self.going[number]
        each = going.sent[place]
        each.through = True
        along = each.message.along
        if along < 0 or going.sent[along].arrived < math.inf:
            self._arrived(number, place, now)

    def _arrived(self, number: int, place: int, now: float) -> None:
        """A message is there, and so are those along it that are through already: the whole of a ring where
        its first hop was the slowest."""
        going, arriving = self.going[number], [place]
        while arriving:
            place = arriving.pop()
            each = going.sent[place]
            each.arrived = now
            for end in {each.message.source, each.message.target} & going.pending.keys():
                going.pending[end] -= 1
                going.met[end] = max(going.met.get(end, 0.0), each.met)
                if not going.pending[end] and end in going.posted:
                    self._done(number, end, place, now)
            for follower in going.followers.get(place, ()):
                other = going.sent[follower]
                if other.message.along != place:
                    self._less(number, follower, now, ~place)
                elif other.through:
                    arriving.append(follower)

    def _done(self, number: int, worker: int, place: int, now: float) -> None:
        going = self.going[number]
        going.done[worker], going.last[worker] = now, place
        if self.waits[worker] == number:
            self.waits[worker] = None
            step = self.program.steps[worker][self.at[worker]]
            assert isinstance(step, Wait)
            self.at[worker] += 1
            self._later(self._waited(worker, step, self.clock[worker], now), worker)
