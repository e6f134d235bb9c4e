"""What a replay runs: each worker's steps in order, and the operations that they post and wait for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.comm.names import STRAGGLE

# Operations whose bytes do not grow with the graph: sums of weights or of a layer's statistics, and flags.
SUMS = ("all_reduce", "all_gather")


@dataclass(slots=True)
class Operation:
    """An operation between workers, or of one worker with a store or with others' memory.

    name, layer   as traced: "exchange", "all_reduce", ...; -1: no layer
    route         how its bytes travel (`harness.comm.recorder.Route`)
    parts         by worker that takes part: {peer: bytes}. Of `pairs` and `broadcast` what it sends; of
                  `take` what it takes from each; of `ring` {next worker: its share of the traffic}; of
                  `server` {-1: bytes there, -2: bytes back}; of `own` {itself: the bytes that it copies}
    """

    name: str
    layer: int
    route: str
    parts: dict[int, Mapping[int, int]] = field(default_factory=dict)

    def display_name(self) -> str:
        return self.name if self.layer < 0 else f"{self.name}, layer {self.layer}"

    def senders(self, worker: int) -> set[int]:
        """The workers whose postings made what a worker that takes part waits for, itself among them."""
        if self.route in ALONE:
            return {worker}
        if self.route == "ring":
            return {*self.parts}
        return {worker, *(w for w, part in self.parts.items() if worker in part)}


THERE, BACK = -1, -2  # keys of the parts of a `server` operation
# Routes of operations in which a worker does something with others that do not take part themselves.
ALONE = ("take", "server", "own")


@dataclass(frozen=True, slots=True)
class Begin:
    """An epoch begins: here all workers meet. The worker's clock starts `late` seconds after that."""

    epoch: int
    late: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """The worker computes (kind "compute"), or makes and reads messages (kind "rest")."""

    kind: str
    name: str
    layer: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Post:
    """The worker begins an operation, and goes on."""

    operation: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The worker goes on when an operation is through for it, and `tail` seconds after that.

    operation   None: one that was posted outside the train clock, and is through
    """

    operation: int | None
    name: str
    layer: int
    tail: float = 0.0


@dataclass(frozen=True, slots=True)
class Take:
    """The worker goes on when the threads beside it have made its next batch."""

    name: str
    layer: int


@dataclass(frozen=True, slots=True)
class Aside:
    """The transport's threads have so many CPU seconds to do from here on, beside the worker."""

    seconds: float


Step = Begin | Work | Post | Wait | Take | Aside


@dataclass(frozen=True)
class Beside:
    """The threads that make a worker's mini-batches beside its training.

    batches   CPU seconds that each takes to be made, in the order in which they are taken
    threads   that make them, a batch each
    ahead     batches that are begun beyond the one that is asked for
    """

    batches: list[float]
    threads: int
    ahead: int


@dataclass
class Program:
    """A run as a replay repeats it.

    steps        by worker
    operations   numbered as the steps name them
    epochs       the epochs' numbers, in order; of an asynchronous run those of the run, which are not the
                 rounds that its workers' steps begin
    updates      of an asynchronous run how many updates of the server's weights end it; its workers begin
                 their rounds without meeting. None: workers begin every epoch together
    beside       by worker; empty where no worker has threads beside its training
    clock        "cpu" or "wall": which seconds work is in. Others' work lengthens wall seconds already, so
                 that threads share a host's cores in a replay only where they are CPU seconds
    """

    steps: list[list[Step]]
    operations: list[Operation]
    epochs: list[int]
    updates: int | None = None
    beside: list[Beside] = field(default_factory=list)
    clock: str = "wall"

    @property
    def workers(self) -> int:
        return len(self.steps)


def crosses_hosts(program: Program, hosts: Sequence[int]) -> bool:
    """Whether workers read memory of workers on another host, which cannot be.

    hosts   of each worker
    """
    taken = [operation.parts for operation in program.operations if operation.route == "take"]
    return any(hosts[w] != hosts[p] for parts in taken for w, part in parts.items() for p in part)


def held_up(program: Program, rank: int, delay: float, slowdown: float) -> Program:
    """The program with a straggler: one worker's work lasts `slowdown` times as long, and in every epoch (or
    round) it is held up for `delay` seconds after its last backward pass, as `harness.core.straggler` does.
    Threads beside its training are as fast as they were."""
    steps = [
        # Who slept sleeps as long on any device.
        replace(step, seconds=slowdown * step.seconds)
        if isinstance(step, Work) and step.name != STRAGGLE
        else step
        for step in program.steps[rank]
    ]
    ends: dict[int, int] = {}  # by epoch, the place after its last backward pass
    epoch = 0
    for place, step in enumerate(steps, 1):
        if isinstance(step, Begin):
            epoch = step.epoch
        if isinstance(step, Begin) or (isinstance(step, Work) and step.name == "backward"):
            ends[epoch] = place
    for place in sorted(ends.values(), reverse=True) if delay else ():
        steps.insert(place, Work("rest", STRAGGLE, -1, delay))
    return replace(program, steps=[*program.steps[:rank], steps, *program.steps[rank + 1 :]])


def blocking(program: Program) -> Program:
    """The program in which a worker does no work while what it posted travels. The wait for each operation is
    moved to its posting, behind the work of the transport for it, so that the worker stops there until the
    operation is through. An operation whose wait is not in the same epoch stays as it is."""
    made = replace(program, steps=[])
    for steps in program.steps:
        waits: dict[int, int] = {}  # by operation posted in this epoch, the place of its wait
        posted: set[int] = set()
        for place, step in enumerate(steps):
            if isinstance(step, Begin):
                posted = set()
            elif isinstance(step, Post):
                posted.add(step.operation)
            elif isinstance(step, Wait) and step.operation in posted:
                waits.setdefault(step.operation, place)
        moved = set(waits.values())
        own: list[Step] = []
        after: list[Step] = []  # moved waits, which follow the transport's work for their operation
        for place, step in enumerate(steps):
            if not isinstance(step, Aside):
                own += after
                after = []
            if place not in moved:
                own.append(step)
            if isinstance(step, Post) and step.operation in waits:
                after.append(steps[waits[step.operation]])
        made.steps.append(own + after)
    return made


def scaled(
    program: Program, seconds: Callable[[Work], float], sizes: Callable[[Operation], float]
) -> Program:
    """The program with the seconds of each work times `seconds(work)`, and the bytes of each operation times
    `sizes(operation)`."""
    operations = []
    for each in program.operations:
        parts: dict[int, Mapping[int, int]] = {
            w: {p: round(n * sizes(each)) for p, n in part.items()} for w, part in each.parts.items()
        }
        operations.append(replace(each, parts=parts))
    steps: list[list[Step]] = [
        [replace(s, seconds=s.seconds * seconds(s)) if isinstance(s, Work) else s for s in own]
        for own in program.steps
    ]
    return replace(program, steps=steps, operations=operations)


def grown(program: Program, times: float, work: bool = True) -> Program:
    """The program as if the graph were so many times as large, at the same degrees and partition. What
    belongs to a layer is `times` as large: its work, the rows that its operations carry, and what the
    transport does for those. So is what makes batches. What belongs to no layer (sums of weights, the
    optimiser) stays as it was.

    work   whether work grows; a roofline has already made counted work grow
    """
    if times == 1:
        return program
    made = scaled(
        program,
        lambda step: times if work and step.layer >= 0 else 1.0,
        lambda operation: times if operation.layer >= 0 and operation.name not in SUMS else 1.0,
    )
    for own in made.steps:
        of = -1  # the layer of what was posted last
        for place, step in enumerate(own):
            if isinstance(step, Post):
                posted = program.operations[step.operation]
                of = -1 if posted.name in SUMS else posted.layer
            elif isinstance(step, Aside) and of >= 0:
                own[place] = Aside(times * step.seconds)
    return replace(made, beside=[replace(b, batches=[times * s for s in b.batches]) for b in program.beside])
