"""How long a dry run's work would take on a described cluster. docs/howto/plan.md derives it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from harness.comm.work import Work
from harness.core.cluster import Cluster, Device
from harness.core.order import FIXED, Shape
from harness.model.replay.program import Program
from harness.model.replay.program import Work as Done
from harness.model.replay.roofline import Speeds

MODELLED = ("dense", "sparse", "stream", "drop", "pack", "code")  # kinds of work that most runs have
EFFICIENCY = 0.5  # of a device's peaks, for kinds of work that the cluster gives no rate of; assumed


class Profile:
    """How long work takes on a device of a cluster.

    With `fp32_tflops` and `memory_gbytes_per_s`: as `harness.model.replay.roofline.Speeds` says, at the
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


class Lasts:
    """How long a dry run's segments last on a cluster's devices, for `harness.model.replay.read.program_of`:
    what was counted of their work; what was not takes no time."""

    noted = False

    def __init__(self, cluster: Cluster, workers: int):
        self.profiles = [Profile(cluster, device) for device in cluster.devices[:workers]]
        self.known: dict[tuple[int, Work], float] = {}

    def segment(
        self, worker: int, layer: int, done: Iterable[Mapping[str, Any]], traced: float, cpu: float
    ) -> float:
        return sum(each["launches"] * self._seconds(worker, each) for each in done)

    def _seconds(self, worker: int, each: Mapping[str, Any]) -> float:
        work = Work(*(each[name] for name in Work._fields))
        if (worker, work) not in self.known:
            self.known[worker, work] = self.profiles[worker].seconds([work])
        return self.known[worker, work]


def larger(program: Program, smaller: Program, to_scale: Callable[[float, float], float]) -> Program:
    """The program at another scale, where totals over workers and epochs of what has one name, layer and kind
    are `to_scale` what they are at this scale and at a smaller one, made of both."""
    work, less_work = _work_by(program), _work_by(smaller)
    sent, less_sent = _sent_by(program), _sent_by(smaller)
    times = {key: to_scale(total, less_work.get(key, 0.0)) / (total or 1.0) for key, total in work.items()}
    more = {key: to_scale(total, less_sent.get(key, 0.0)) / (total or 1.0) for key, total in sent.items()}
    operations = [
        replace(
            each,
            parts={
                worker: {peer: round(size * more[each.name, each.layer]) for peer, size in part.items()}
                for worker, part in each.parts.items()
            },
        )
        for each in program.operations
    ]
    steps = [
        [
            replace(step, seconds=step.seconds * times[_of(step)]) if isinstance(step, Done) else step
            for step in line
        ]
        for line in program.steps
    ]
    return replace(program, steps=steps, operations=operations)


def _of(step: Done) -> tuple[str, str, int]:
    return step.kind, step.name, step.layer


def _work_by(program: Program) -> dict[tuple[str, str, int], float]:
    total: dict[tuple[str, str, int], float] = defaultdict(float)
    for step in (step for line in program.steps for step in line if isinstance(step, Done)):
        total[_of(step)] += step.seconds
    return total


def _sent_by(program: Program) -> dict[tuple[str, int], float]:
    total: dict[tuple[str, int], float] = defaultdict(float)
    for each in program.operations:
        total[each.name, each.layer] += sum(sum(part.values()) for part in each.parts.values())
    return total
