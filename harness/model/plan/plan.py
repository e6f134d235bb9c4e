"""A plan: memory, bytes and seconds of a run, from its graph's partition, or from a smaller twin's."""

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.base.errors import InputError
from harness.core.cluster import GIB, Cluster
from harness.core.cuts import check_cut
from harness.data.partition import io
from harness.model.plan.sized import COUNTED, ENDS, Sized, dry_epochs, larger, said, sized
from harness.model.replay.engine import simulate
from harness.model.replay.platform import devices_of, platform_of
from harness.model.replay.program import crosses_hosts
from harness.model.replay.times import Times, times_of
from harness.run.config import Run
from harness.run.prepare import check_supported, shards_of


@dataclass
class Plan(Sized):
    """What a run would take. `programs` is empty, since those of all runs of a sweep would fill memory. Where
    it is made of smaller twins, `bytes` has no columns `worker` and `peer`.

    seconds    modelled, at the least and at the most bytes; empty where only a run can tell
    hosts      each worker's host
    across     whether workers read memory of another host's workers, which cannot be on this cluster
    sample     scale of the smaller twins that the plan is extrapolated from; None: it is made of the graph
               itself
    notes      what was assumed, and how it was extrapolated
    """

    run: Run
    cluster: Cluster
    seconds: list[Times]
    hosts: list[int]
    across: bool
    sample: float | None
    notes: list[str]

    @property
    def total(self) -> np.ndarray:
        """[P] bytes of memory of each worker."""
        return sum(self.memory.values(), np.zeros(self.run.settings.workers))

    @property
    def needs(self) -> float:
        """Bytes of the worker that needs most."""
        return float(self.total.max())

    @property
    def has(self) -> list[float]:
        """Bytes of memory that each worker's device has; empty where the cluster does not say."""
        devices = self.cluster.devices[: self.run.settings.workers]
        found = [device.memory_gb * GIB for device in devices if device.memory_gb is not None]
        return found if len(found) == len(devices) else []

    @property
    def fits(self) -> bool | None:
        """Whether every worker's part fits into its device; None where the cluster does not say."""
        return bool((self.total <= np.array(self.has)).all()) if self.has else None

    @property
    def exact(self) -> bool:
        """Whether the bytes of every epoch of the dry run are one number rather than a range."""
        return bool((self.bytes["least"] == self.bytes["most"]).all())

    def bytes_by_purpose(self) -> pd.DataFrame:
        """By purpose, the `least` and the `most` bytes per epoch of all workers together: means over the
        run's epochs after the first, as in summaries. A purpose that sends nothing is left out."""
        counts = dry_epochs(self.run)
        if len(counts) > 1:
            counts[0] = 0
        sent = self.bytes[ENDS].mul(counts[self.bytes["epoch"]], axis=0)
        means = sent.groupby(self.bytes["purpose"]).sum() / counts.sum()
        return means[means["most"] > 0]

    def bytes_epoch(self) -> pd.Series:
        """The `least` and the `most` bytes per epoch of all workers and purposes: means over the epochs after
        the first."""
        return self.bytes_by_purpose().sum()

    def bytes_first(self) -> pd.Series:
        """The same of the first epoch."""
        return self.bytes.loc[self.bytes["epoch"] == 0, ENDS].sum()


def plan(run: Run, cluster: Cluster, sample: float | None = None, per_host: int | None = None) -> Plan:
    """The plan of a run on a described cluster.

    sample     scale of the smaller twins that it is extrapolated from; None: the graph itself is partitioned
    per_host   workers on each host; None: one on each device, in their order

    InputError where the system cannot do the run, or the cluster has too few devices.
    """
    workers = run.settings.workers
    check_cut(run.system, run.partition.cut, f"partition={run.partition.name} is")
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
    across = any(crosses_hosts(each, hosts) for each in found.programs)
    if not found.lacking:
        notes.append(
            f"work is timed {said(cluster, devices[0])}; work that the dry run does"
            " not count takes no time, so use the seconds only to order systems"
        )
        counts = dry_epochs(run)
        if (epochs := len(counts)) < run.settings.epochs:
            notes.append(f"epochs {epochs + 1} to {run.settings.epochs} are taken to repeat those before")
        platform = platform_of(cluster, workers, per_host)
        seconds = [times_of(simulate(each, platform), counts) for each in found.programs]
        notes += [f"assumed, since the cluster does not say: {each}" for each in platform.assumed]
    if across:
        notes.append(
            f"workers of system={run.system_name} read memory of another host's workers here, which cannot"
            " be: give a cluster of one host, or knobs that keep to a host"
        )
    kept = {**vars(found), "programs": []}
    return Plan(**kept, run=run, cluster=described, seconds=seconds, hosts=hosts, across=across,
                sample=sample, notes=notes)  # fmt: skip


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
    if not sample < scale:
        raise InputError(f"sample={sample} is no smaller than dataset.scale={scale}: give less")
    try:
        whole, half = (
            _sized(dataclasses.replace(run, dataset=dataclasses.replace(dataset, scale=each)), place, cluster)
            for each in (sample, sample / 2)
        )
    except InputError as error:
        raise InputError(f"sample={sample} plans twins at {sample:g} and {sample / 2:g}: {error}") from None
    if whole.lacking:
        return whole

    def end(at: int, large: Any, small: Any) -> Any:
        return grown(np.asarray(large), np.asarray(small), scale / sample)[at]

    notes.append(
        f"extrapolated to scale {scale:g} from twins at {sample:g} and {sample / 2:g}: every total lies"
        " between growing as the power of the scale that it grew by between them, and growing as the scale;"
        " memory is the larger (docs/howto/plan.md)"
    )
    memory = {name: end(1, whole.memory[name], half.memory[name]) for name in whole.memory}
    # The memory of a step grows in jumps. A jump between the two twins is no power of the scale, so it grows
    # by no more than the scale does.
    memory["step"] = np.minimum(memory["step"], whole.memory["step"] * scale / sample)
    large, small = (each.bytes.groupby(COUNTED)[ENDS].sum() for each in (whole, half))
    small = small.reindex(large.index).fillna(large)
    sent = pd.DataFrame(
        {name: [*map(partial(end, at), large[name], small[name])] for at, name in enumerate(ENDS)},
        index=large.index,
        dtype=float,
    )
    programs = [larger(whole.programs[-at], half.programs[-at], partial(end, at)) for at in (0, 1)]
    return Sized(memory, sent.reset_index(), programs, "")


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
