"""What an epoch would take on a described cluster: modelled, from bytes and work alone.

Messages go through the links of `harness.replay`. An epoch is, layer by layer, what a layer sends posted, its
work on own rows, the wait, its work on halo rows; then the same backwards, the sum of gradients, and the
optimiser's step. docs/howto/plan.md derives each line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.cluster.config import Cluster, Device
from harness.comm.work import Work
from harness.core.order import FIXED, Shape
from harness.core.traffic import Key, Traffic
from harness.plan.loads import Loads
from harness.plan.work import Case, layer_work, step_work
from harness.replay import program
from harness.replay.collectives import Shapes
from harness.replay.engine import simulate
from harness.replay.platform import Platform
from harness.replay.program import BACK, THERE, Begin, Operation, Post, Program, Step, Wait
from harness.replay.roofline import Speeds
from harness.replay.times import Times, times_of

MODELLED = ("dense", "sparse", "stream", "drop")  # kinds of work that a plan has
EFFICIENCY = 0.5  # of a device's peaks, for kinds of work that the cluster gives no rate of; assumed


class Profile:
    """How long work takes on a device of a cluster.

    With `fp32_tflops` and `memory_gbytes_per_s`: as `harness.replay.roofline.Speeds` says, at the
    efficiencies that the cluster gives (`halobench cluster measure` writes them), or at EFFICIENCY. Where the
    cluster says neither, `harness.core.order.FIXED`: nanoseconds per entry and per multiply-add of a
    processor's core, and nothing for what is no product.
    """

    def __init__(self, cluster: Cluster, device: Device):
        self.device = device
        described = device.fp32_tflops is not None and device.memory_gbytes_per_s is not None
        self.speeds = Speeds(cluster, EFFICIENCY) if described else None

    @property
    def said(self) -> str:
        if self.speeds is None:
            return (
                "as one core of a processor takes products (harness/core/order.py), since the cluster does"
                " not say fp32_tflops and memory_gbytes_per_s"
            )
        assumed = [kind for kind in MODELLED if kind not in self.speeds.efficiencies]
        if not assumed:
            return "at the cluster's measured efficiencies"
        half = f"{100 * EFFICIENCY:.0f} % of the devices' peaks, which is assumed"
        if len(assumed) == len(MODELLED):
            return f"at {half}"
        return f"at the cluster's measured efficiencies, {', '.join(assumed)} at {half}"

    def seconds(self, works: Iterable[Work]) -> float:
        if self.speeds is not None:
            return sum(self.speeds.seconds(work, self.device) for work in works)
        return sum(_on_a_core(work) for work in works)


def _on_a_core(work: Work) -> float:
    if work.kind == "dense":
        return FIXED.dense(work.rows, work.columns, work.width) / 1e9
    if work.kind == "sparse":
        return FIXED.sparse(Shape(work.rows, work.columns, work.entries), work.width) / 1e9
    return 0.0


def operations_of(traffic: Traffic, sizes: dict[Key, np.ndarray]) -> dict[Key, list[Operation]]:
    """A trace's operations, of such sizes: one per key and, of what goes one way between a worker and others'
    memory or a store, one per worker."""
    made: dict[Key, list[Operation]] = {}
    for key, matrix in sizes.items():
        if not matrix.any():
            continue
        layer, _, purpose = key
        route, workers = traffic.route[key], range(traffic.workers)
        if route in ("take", "own", "server"):
            made[key] = []
            for k in workers:
                to = {p: int(matrix[k, p]) for p in workers if matrix[k, p]}
                part = to if route == "take" else {k if route == "own" else THERE: int(matrix[k, -1])}
                if route == "server":
                    part[BACK] = 0
                made[key].append(Operation(purpose, layer, route, {k: part}))
            continue
        parts: dict[int, Mapping[int, int]] = {
            k: {p: int(matrix[k, p]) for p in workers if matrix[k, p]} for k in workers
        }
        made[key] = [Operation(purpose, layer, route, parts)]
    return made


class _Line:
    """One worker's steps, epoch after epoch. late: waits of a layer and direction for what the epoch before
    posted."""

    def __init__(self, worker: int, operations: list[Operation]):
        self.worker, self.operations = worker, operations
        self.steps: list[Step] = []
        self.late: dict[tuple[int, str], list[Wait]] = {}

    def post(self, traffic: Traffic, places: dict[Key, list[int]], layer: int, direction: str) -> list[Wait]:
        """Post what belongs to a layer and direction; gives what is to be waited for now."""
        waits = self.late.pop((layer, direction), [])
        later: list[Wait] = []
        for key, at in places.items():
            if key[0] != layer or (layer >= 0 and key[1] != direction):
                continue
            number = at[self.worker if len(at) > 1 else 0]
            if self.worker not in self.operations[number].parts:
                continue
            self.steps.append(Post(number))
            wait = Wait(number, self.operations[number].name, layer)
            (later if key in traffic.ahead else waits).append(wait)
        if later:
            self.late[layer, direction] = later
        return waits

    def epoch(
        self,
        number: int,
        traffic: Traffic,
        places: dict[Key, list[int]],
        costs: Sequence[Sequence[float]],
        step: float,
    ) -> None:
        """costs   seconds of each layer's parts, as `LayerWork` has them; step: of the optimiser's"""
        self.steps.append(Begin(number))
        layers = range(len(costs))
        for layer in layers:
            waits = self.post(traffic, places, layer, "forward")
            self.steps += [program.Work("compute", "forward", layer, costs[layer][0]), *waits]
            self.steps.append(program.Work("compute", "forward", layer, costs[layer][1]))
        for layer in reversed(layers):  # gradients of halo rows are made before they leave
            self.steps.append(program.Work("compute", "backward", layer, costs[layer][2]))
            waits = self.post(traffic, places, layer, "backward")
            self.steps += [program.Work("compute", "backward", layer, costs[layer][3]), *waits]
        self.steps += self.post(traffic, places, -1, "")
        self.steps.append(program.Work("compute", "optimiser", -1, step))


def program_of(
    loads: Loads, case: Case, epochs: Sequence[Traffic], profiles: Sequence[Profile], most: bool
) -> Program:
    """Epochs of this traffic, at its least or its most, as a replay runs them. An epoch of several steps has
    the work of one step so many times."""
    operations: list[Operation] = []
    lines = [_Line(worker, operations) for worker in range(loads.workers)]
    layers, steps = range(len(loads.layers)), case.system.steps()
    costs = [
        [[steps * profile.seconds(part) for part in layer_work(loads, l, k, case)] for l in layers]
        for k, profile in enumerate(profiles)
    ]
    last = [steps * profile.seconds(step_work(case)) for profile in profiles]
    for number, traffic in enumerate(epochs):
        places: dict[Key, list[int]] = {}
        for key, made in operations_of(traffic, traffic.most if most else traffic.least).items():
            places[key] = list(range(len(operations), len(operations) + len(made)))
            operations += made
        for line, own, step in zip(lines, costs, last):
            line.epoch(number, traffic, places, own, step)
    return Program([line.steps for line in lines], operations, list(range(len(epochs))))


def epoch_seconds(
    loads: Loads,
    case: Case,
    epochs: Sequence[Traffic],
    cluster: Cluster,
    platform: Platform,
    most: bool,
) -> Times:
    """Means over the epochs but the first, as of a trace."""
    profiles = [Profile(cluster, device) for device in cluster.devices[: loads.workers]]
    return times_of(simulate(program_of(loads, case, epochs, profiles, most), platform, Shapes()))
