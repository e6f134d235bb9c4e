"""How long a dry run's work would take on a described cluster. docs/howto/plan.md derives it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from harness.core.cluster import Cluster, Device
from harness.model.replay.program import Program, Work, scaled
from harness.model.replay.roofline import has_peaks

MODELLED = ("dense", "sparse", "stream", "drop", "pack", "code")  # kinds of work that most runs have
LAUNCH_US = 5.0  # of an operation on a GPU, where the cluster does not say it; assumed
EFFICIENCY = 0.5  # of a device's peaks, for kinds of work that the cluster gives no rate of; assumed


def with_launches(cluster: Cluster) -> tuple[Cluster, list[str]]:
    """A cluster whose GPUs say what a launch takes, and what was assumed of them for it."""
    lacking = [device.launch_us is None and has_peaks(device) for device in cluster.devices]
    if cluster.rates or cluster.device_cores or not any(lacking):
        return cluster, []
    devices = [
        replace(device, launch_us=LAUNCH_US) if lacks else device
        for device, lacks in zip(cluster.devices, lacking)
    ]
    said = f"assumed, since the cluster does not say: launch_us={LAUNCH_US:g}, of every operation on a GPU"
    return cluster.with_devices(devices), [said]


def said(cluster: Cluster, device: Device) -> str:
    """How a plan times work on a device of a cluster (`harness.model.replay.roofline.Speeds`, at EFFICIENCY
    where the cluster gives no rates), in words."""
    if not has_peaks(device):
        return (
            "as one core of a processor takes products (harness/core/order.py), since the cluster does not"
            " say fp32_tflops and memory_gbytes_per_s"
        )
    assumed = [kind for kind in MODELLED if kind not in {rate.kind for rate in cluster.rates}]
    if not assumed:
        return "at the cluster's measured efficiencies"
    half = f"{100 * EFFICIENCY:.0f} % of the devices' peaks, which is assumed"
    if len(assumed) == len(MODELLED):
        return f"at {half}"
    return f"at the cluster's measured efficiencies, {', '.join(assumed)} at {half}"


def larger(program: Program, smaller: Program, to_scale: Callable[[float, float], float]) -> Program:
    """The program at another scale, where totals over workers and epochs of what has one name, layer and kind
    are `to_scale` what they are at this scale and at a smaller one, made of both."""
    work, less_work = _work_by(program), _work_by(smaller)
    sent, less_sent = _sent_by(program), _sent_by(smaller)
    times = {key: to_scale(total, less_work.get(key, 0.0)) / (total or 1.0) for key, total in work.items()}
    more = {key: to_scale(total, less_sent.get(key, 0.0)) / (total or 1.0) for key, total in sent.items()}
    return scaled(program, lambda step: times[_of(step)], lambda each: more[each.name, each.layer])


def _of(step: Work) -> tuple[str, str, int]:
    return step.kind, step.name, step.layer


def _work_by(program: Program) -> dict[tuple[str, str, int], float]:
    total: dict[tuple[str, str, int], float] = defaultdict(float)
    for step in (step for line in program.steps for step in line if isinstance(step, Work)):
        total[_of(step)] += step.seconds
    return total


def _sent_by(program: Program) -> dict[tuple[str, int], float]:
    total: dict[tuple[str, int], float] = defaultdict(float)
    for each in program.operations:
        total[each.name, each.layer] += sum(sum(part.values()) for part in each.parts.values())
    return total
