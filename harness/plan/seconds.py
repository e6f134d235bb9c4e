"""What an epoch would take on a described cluster: modelled, from bytes and products alone.

Work is products; messages go through the links of `harness.replay`. An epoch is, layer by layer, what a layer
sends posted, its product over own rows, the wait, its product over halo rows; then the same backwards, and
the sum of gradients. docs/howto/plan.md derives each line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from harness.cluster.config import Cluster, Device
from harness.core.order import FIXED, Order, Shape
from harness.core.system import AnySystem
from harness.core.traffic import FLOAT, Key, Traffic
from harness.plan.loads import Loads, transforms_first
from harness.replay.collectives import Shapes
from harness.replay.engine import simulate
from harness.replay.platform import Platform
from harness.replay.program import BACK, THERE, Begin, Operation, Post, Program, Step, Wait, Work
from harness.replay.times import Times, times_of

EFFICIENCY = 0.5  # of a device's peaks; assumed
INDEX = 4


class Profile:
    """How long products take on a device.

    With `fp32_tflops` and `memory_gbytes_per_s`: multiply-adds at EFFICIENCY of the one; a sparse product
    reads a row and an index per entry and writes its rows, at EFFICIENCY of the other. Where the cluster says
    neither, `harness.core.order.FIXED`: nanoseconds per entry and per multiply-add of a processor's core.
    """

    def __init__(self, device: Device):
        self.flops = device.fp32_tflops and device.fp32_tflops * 1e12 * EFFICIENCY
        self.bytes = device.memory_gbytes_per_s and device.memory_gbytes_per_s * 1e9 * EFFICIENCY

    @property
    def said(self) -> str:
        if self.flops and self.bytes:
            return f"products at {100 * EFFICIENCY:.0f} % of the devices' peaks, which is assumed"
        return (
            "products as one core of a processor takes them (harness/core/order.py), since the cluster does"
            " not say fp32_tflops and memory_gbytes_per_s"
        )

    def dense(self, rows: float, f_in: int, f_out: int) -> float:
        """Seconds of X W for X [rows, f_in]."""
        if self.flops and self.bytes:
            return 2 * rows * f_in * f_out / self.flops
        return FIXED.dense(int(rows), f_in, f_out) / 1e9

    def sparse(self, rows: float, columns: float, entries: float, width: int) -> float:
        """Seconds of A X for A [rows, columns] and X [columns, width]."""
        if not entries:
            return 0.0
        if self.flops and self.bytes:
            return (entries * (FLOAT * width + INDEX) + FLOAT * rows * width) / self.bytes
        return FIXED.sparse(Shape(int(rows), int(columns), int(entries)), width) / 1e9


def work(
    loads: Loads, layer: int, worker: int, system: AnySystem, profile: Profile
) -> tuple[float, float, float, float]:
    """Seconds of a layer's products: forward before the halo's rows are there, and after; backward, before
    and after."""
    of, (f_in, f_out) = loads.layers[layer], loads.widths[layer : layer + 2]
    passes = system.passes[min(layer, 1)]
    first = transforms_first(loads, layer, worker, passes, Order())
    given, taken, halo = of.given[worker], of.taken[worker], of.halo[worker]
    if layer == 0 and system.features == "once":
        product = profile.dense(given, f_in, f_out)  # A X is kept
        return product, 0.0, product, 0.0
    width, near, far = (f_out, taken, halo) if first else (f_in, given, 0.0)
    inner = profile.sparse(given, taken, of.inner_entries[worker], width)
    remote = profile.sparse(given, halo, of.halo_entries[worker], width)
    own, other = profile.dense(near, f_in, f_out), profile.dense(far, f_in, f_out) if far else 0.0
    if layer == 0:  # no gradient of the features
        back = (passes.transformed - 1 if first else passes.aggregated - 1) * (inner + remote)
        return inner + own, remote + other, back + (own + other), 0.0
    return inner + own, remote + other, remote + 2 * other, inner + 2 * own


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
    ) -> None:
        """costs   of each layer, as `work` gives them"""
        self.steps.append(Begin(number))
        layers = range(len(costs))
        for layer in layers:
            waits = self.post(traffic, places, layer, "forward")
            self.steps += [Work("compute", "forward", layer, costs[layer][0]), *waits]
            self.steps.append(Work("compute", "forward", layer, costs[layer][1]))
        for layer in reversed(layers):  # gradients of halo rows are made before they leave
            self.steps.append(Work("compute", "backward", layer, costs[layer][2]))
            waits = self.post(traffic, places, layer, "backward")
            self.steps += [Work("compute", "backward", layer, costs[layer][3]), *waits]
        self.steps += self.post(traffic, places, -1, "")


def program_of(
    loads: Loads, system: AnySystem, epochs: Sequence[Traffic], profiles: Sequence[Profile], most: bool
) -> Program:
    """Epochs of this traffic, at its least or its most, as a replay runs them. An epoch of several steps has
    the products of one step so many times."""
    operations: list[Operation] = []
    lines = [_Line(worker, operations) for worker in range(loads.workers)]
    layers = range(len(loads.layers))
    steps = system.steps()
    costs = [
        [tuple(steps * each for each in work(loads, l, k, system, profiles[k])) for l in layers]
        for k in range(loads.workers)
    ]
    for number, traffic in enumerate(epochs):
        places: dict[Key, list[int]] = {}
        for key, made in operations_of(traffic, traffic.most if most else traffic.least).items():
            places[key] = list(range(len(operations), len(operations) + len(made)))
            operations += made
        for line, own in zip(lines, costs):
            line.epoch(number, traffic, places, own)
    return Program([line.steps for line in lines], operations, list(range(len(epochs))))


def epoch_seconds(
    loads: Loads,
    system: AnySystem,
    epochs: Sequence[Traffic],
    cluster: Cluster,
    platform: Platform,
    most: bool,
) -> Times:
    """Means over the epochs but the first, as of a trace."""
    profiles = [Profile(device) for device in cluster.devices[: loads.workers]]
    return times_of(simulate(program_of(loads, system, epochs, profiles, most), platform, Shapes()))
