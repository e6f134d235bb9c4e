"""A plan: memory, bytes and seconds of a run, from its graph's partition, or from a smaller twin's."""

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.base.errors import InputError
from harness.core.cluster import GIB, Cluster
from harness.core.cuts import check_cut
from harness.data.partition import io
from harness.model.plan.sized import EPOCHS, Sized, Traffic, larger, said, sized
from harness.model.replay.engine import simulate
from harness.model.replay.platform import devices_of, platform_of
from harness.model.replay.program import crosses_hosts
from harness.model.replay.times import Times, times_of
from harness.run.config import Run
from harness.run.prepare import check_supported, shards_of


@dataclass
class Plan:
    """What a run would take.

    memory     by what it is for, [P] bytes of each worker
    epochs     the traffic of each epoch; empty where only a run can tell
    seconds    modelled, at the least and at the most bytes; empty where there is no traffic
    lacking    why there is no traffic; "" where there is
    hosts      each worker's host
    across     whether workers read memory of another host's workers, which cannot be on this cluster
    sample     scale of the smaller twins that the plan is extrapolated from; None: it is made of the graph
               itself
    notes      what was assumed, and how it was extrapolated
    """

    run: Run
    cluster: Cluster
    memory: dict[str, np.ndarray]
    epochs: list[Traffic]
    seconds: list[Times]
    lacking: str
    hosts: list[int]
    across: bool
    sample: float | None
    notes: list[str]

    @property
    def workers(self) -> int:
        return self.run.settings.workers

    @property
    def needs(self) -> float:
        """Bytes of the worker that needs most."""
        return float(sum(self.memory.values(), np.zeros(self.workers)).max())

    @property
    def has(self) -> list[float]:
        """Bytes of memory that each worker's device has; empty where the cluster does not say."""
        devices = self.cluster.devices[: self.workers]
        found = [device.memory_gb * GIB for device in devices if device.memory_gb is not None]
        return found if len(found) == self.workers else []

    @property
    def fits(self) -> bool | None:
        """Whether every worker's part fits into its device; None where the cluster does not say."""
        if not self.has:
            return None
        total = sum(self.memory.values(), np.zeros(self.workers))
        return bool((total <= np.array(self.has)).all())

    @property
    def exact(self) -> bool:
        """Whether the bytes of every epoch are one number rather than a range."""
        return all(traffic.exact for traffic in self.epochs)

    def bytes_by_purpose(self) -> dict[str, tuple[float, float]]:
        """By purpose, the least and the most bytes per epoch of all workers together: means over the epochs
        after the first, as in summaries. A purpose that sends nothing is left out."""
        warm = self.epochs[1:] or self.epochs
        found: dict[str, tuple[float, float]] = {}
        for traffic in warm:
            for key in traffic.least:
                low, high = found.get(key[2], (0.0, 0.0))
                each = traffic.least[key].sum() / len(warm), traffic.most[key].sum() / len(warm)
                found[key[2]] = float(low + each[0]), float(high + each[1])
        return {purpose: both for purpose, both in found.items() if both[1]}

    def bytes_epoch(self) -> tuple[float, float]:
        """The least and the most bytes per epoch of all workers and purposes: means over the epochs after the
        first."""
        both = list(self.bytes_by_purpose().values())
        return sum(low for low, _ in both), sum(high for _, high in both)


def plan(run: Run, cluster: Cluster, sample: float | None = None, per_host: int | None = None) -> Plan:
    """The plan of a run on a described cluster.

    sample     scale of the smaller twins that it is extrapolated from; None: the graph itself is partitioned
    per_host   workers on each host; None: one on each device, in their order

    InputError where the system cannot do the run, or the cluster has too few devices.
    """
    workers = run.settings.workers
    check_cut(run.system, run.partition.cut, f"partition={run.partition.name} is")
    cluster.check_workers(workers)
    devices = devices_of(cluster, workers, per_host)
    notes: list[str] = []
    device = "cpu" if run.settings.device == "cpu" else "cuda"
    hosts = [each.host for each in devices]
    place = (
        "memory" if device == "cpu" and len({*hosts}) == 1 and run.settings.transport != "sockets" else device
    )
    described = cluster.with_devices(devices)
    if sample is None:
        found = _sized(run, place, described)
    else:
        found = _extrapolated(run, sample, place, described, notes)
    seconds: list[Times] = []
    across = False
    if found.epochs:
        notes.append(
            f"work is timed {said(cluster, devices[0])}; what no run counts takes no time: use"
            " seconds to order systems"
        )
        if run.settings.epochs > EPOCHS:
            notes.append(f"bytes per epoch are the mean of epochs 2 to {EPOCHS} of {run.settings.epochs}")
        platform = platform_of(cluster, workers, per_host)
        seconds = [times_of(simulate(each, platform)) for each in found.programs]
        notes += [f"assumed, since the cluster does not say: {each}" for each in platform.assumed]
        across = any(crosses_hosts(each, hosts) for each in found.programs)
    if across:
        notes.append(
            f"workers of system={run.system_name} read memory of another host's workers here, which cannot"
            " be: give a cluster of one host, or knobs that keep to a host"
        )
    return Plan(
        run, described, found.memory, found.epochs, seconds, found.lacking, hosts, across, sample, notes
    )


def _sized(run: Run, place: str, cluster: Cluster) -> Sized:
    folder, _ = shards_of(run)
    check_supported(run, json.loads((folder / "stats.json").read_text()))
    return sized(run, [io.load(folder, rank) for rank in range(run.settings.workers)], place, cluster)


def _extrapolated(run: Run, sample: float, place: str, cluster: Cluster, notes: list[str]) -> Sized:
    """What a run takes, extrapolated from twins at `sample` and at half of it. `grown` gives a least and a
    most for each total: memory is the most, traffic and work are a range."""
    dataset: Any = run.dataset
    scale = getattr(dataset, "scale", None)
    if scale is None or getattr(dataset, "source", "twin") != "twin":
        raise InputError(
            f"sample={sample} asks for a smaller twin, and dataset={run.dataset.label} is none: give"
            " dataset=twin/NAME, or leave sample out"
        )
    if not 0 < sample < scale:
        raise InputError(
            f"sample={sample} is no smaller than dataset.scale={scale}: give more than 0 and less"
        )
    try:
        whole, half = (
            _sized(dataclasses.replace(run, dataset=dataclasses.replace(dataset, scale=each)), place, cluster)
            for each in (sample, sample / 2)
        )
    except InputError as error:
        raise InputError(f"sample={sample} plans twins at {sample:g} and {sample / 2:g}: {error}") from None
    if whole.lacking:
        return whole

    def end(most: bool) -> Callable[[Any, Any], Any]:
        return lambda large, small: grown(np.asarray(large), np.asarray(small), scale / sample)[most]

    notes.append(
        f"extrapolated to scale {scale:g} from twins at {sample:g} and {sample / 2:g}: every total lies"
        " between growing as the power of the scale that it grew by between them, and growing as the scale;"
        " memory is the larger (docs/howto/plan.md)"
    )
    memory = {name: end(True)(whole.memory[name], half.memory[name]) for name in whole.memory}
    # The memory of a step grows in jumps. A jump between the two twins is no power of the scale, so it grows
    # by no more than the scale does.
    memory["step"] = np.minimum(memory["step"], whole.memory["step"] * scale / sample)
    epochs = [_traffic(a, b, end) for a, b in zip(whole.epochs, half.epochs)]
    programs = [larger(whole.programs[-most], half.programs[-most], end(most)) for most in (False, True)]
    return Sized(memory, epochs, programs)


def grown(large: np.ndarray, small: np.ndarray, times: float) -> tuple[np.ndarray, np.ndarray]:
    """Extrapolate values [..] at one scale to `times` that scale, at the least and at the most.

    large, small   values at that scale and at half of it

    The sum of the values grows either as the power of the scale by which it grew from `small` to `large`, or
    in proportion to the scale: what is cut of a small graph grows by less than the graph does, of a large one
    as the graph. A sum that did not grow stays as it is; one that is 0 in `small` grows in proportion.
    """
    big, less = float(large.sum()), float(small.sum())
    if big == less:
        return large, large
    factors = times, times if less <= 0 else (big / less) ** math.log2(times) if big > 0 else 0.0
    return large * min(factors), large * max(factors)


def _traffic(large: Traffic, small: Traffic, end: Callable[[bool], Callable[[Any, Any], Any]]) -> Traffic:
    made = Traffic()
    for key in large.least:
        made.least[key] = end(False)(large.least[key], small.least.get(key, large.least[key]))
        made.most[key] = end(True)(large.most[key], small.most.get(key, large.most[key]))
    return made
