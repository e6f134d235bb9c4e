"""A plan: memory, bytes and seconds of a run, from its graph's partition, or from a smaller twin's."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.check import InputError
from harness.cluster.config import GIB, Cluster
from harness.core.batches import BatchSystem
from harness.core.cuts import check_cut
from harness.core.traffic import Key, Traffic, halo_exchanges
from harness.graph.dataset import Dataset
from harness.partition import io
from harness.partition.cache import Cache, shards_for
from harness.plan.loads import Layer, Loads, loads_of
from harness.plan.memory import held
from harness.plan.seconds import Profile, epoch_seconds
from harness.plan.sizes import Asked, epoch_traffic, parts_of, shapes_of
from harness.plan.work import Case
from harness.replay.platform import devices_of, platform_of
from harness.replay.times import Times
from harness.run.config import Run
from harness.run.prepare import check_supported

SIMULATED = 21  # epochs whose seconds are modelled, the first of which is left out


@dataclass
class Plan:
    """What a run would take.

    memory     by what it is for, [P] bytes of each worker
    epochs     the traffic of each epoch; empty where only a run can tell
    seconds    modelled, at the least and at the most bytes; empty where there is no traffic
    lacking    why there is no traffic; "" where there is
    hosts      of each worker
    sample     scale of the smaller twins that it is extrapolated from; None: of the graph itself
    notes      what was assumed, and how it was extrapolated
    """

    run: Run
    cluster: Cluster
    loads: Loads
    memory: dict[str, np.ndarray]
    epochs: list[Traffic]
    seconds: list[Times]
    lacking: str
    hosts: list[int]
    sample: float | None
    notes: list[str]

    @property
    def needs(self) -> float:
        """Bytes of the worker that needs most."""
        return float(sum(self.memory.values(), np.zeros(self.loads.workers)).max())

    @property
    def has(self) -> list[float]:
        """Bytes of memory that each worker's device has; empty where the cluster does not say."""
        devices = self.cluster.devices[: self.loads.workers]
        found = [device.memory_gb * GIB for device in devices if device.memory_gb is not None]
        return found if len(found) == self.loads.workers else []

    @property
    def fits(self) -> bool | None:
        """Whether every worker's part fits into its device; None where the cluster does not say."""
        if not self.has:
            return None
        total = sum(self.memory.values(), np.zeros(self.loads.workers))
        return bool((total <= np.array(self.has)).all())

    @property
    def exact(self) -> bool:
        """Whether bytes are known, rather than a range."""
        return all(traffic.exact for traffic in self.epochs)

    @property
    def across(self) -> bool:
        """Whether workers read memory of another host's workers, which cannot be on this cluster."""
        hosts = np.array(self.hosts)
        apart = hosts[:, None] != hosts[None, :]
        return any(
            bool(matrix[:, : len(hosts)][apart].any())
            for traffic in self.epochs
            for key, matrix in traffic.most.items()
            if traffic.route[key] == "take"
        )

    def bytes_by_purpose(self) -> dict[str, tuple[float, float]]:
        """Mean bytes per epoch of all workers, the least and the most, without the first epoch, as summaries
        have them."""
        warm = self.epochs[1:] or self.epochs
        found: dict[str, tuple[float, float]] = {}
        for traffic in warm:
            for key in traffic.least:
                low, high = found.get(key[2], (0.0, 0.0))
                each = traffic.least[key].sum() / len(warm), traffic.most[key].sum() / len(warm)
                found[key[2]] = float(low + each[0]), float(high + each[1])
        return {purpose: both for purpose, both in found.items() if both[1]}

    def bytes_epoch(self) -> tuple[float, float]:
        both = list(self.bytes_by_purpose().values())
        return sum(low for low, _ in both), sum(high for _, high in both)


def plan(run: Run, cluster: Cluster, sample: float | None = None, per_host: int | None = None) -> Plan:
    """The plan of a run on a described cluster.

    sample   scale of the smaller twins that it is extrapolated from; None: the graph itself is partitioned

    InputError where the system cannot do the run, or the cluster has too few devices.
    """
    workers = run.settings.workers
    check_cut(run.system, run.partition.cut, f"partition={run.partition.name} is")
    cluster.check_workers(workers)
    devices = cluster.devices[:workers]
    run.system.cluster = cluster.with_devices(devices)
    notes: list[str] = []
    device = "cpu" if run.settings.device == "cpu" else "cuda"
    hosts = [each.host for each in devices_of(cluster, workers, per_host)]
    place = (
        "memory" if device == "cpu" and len({*hosts}) == 1 and run.settings.transport != "sockets" else device
    )
    if sample is None:
        loads, memory, epochs = _sized(run, place)
        fewest = loads
    else:
        fewest, loads, memory, epochs = _extrapolated(run, sample, place, notes)
    seconds: list[Times] = []
    lacking = ""
    if not epochs:
        lacking = (
            f"what {run.system_name} sends depends on what it draws, or on when updates arrive: give probe=10"
        )
    else:
        profile = Profile(cluster, devices[0])
        notes.append(
            f"work is timed {profile.said}; making messages takes no time. Beside runs of this harness on two"
            " quiet cores such seconds were 0.54 to 0.66 of those measured: use them to order systems"
        )
        values = sum(math.prod(shape) for shape in shapes_of(run.model, loads.widths))
        case = Case(run.system, run.model.dropout, device == "cpu", values)
        platform = platform_of(cluster, workers, per_host)
        notes += [f"assumed, since the cluster does not say: {each}" for each in platform.assumed]
        exact = all(traffic.exact for traffic in epochs)
        seconds = [
            epoch_seconds(loads if most else fewest, case, epochs[:SIMULATED], cluster, platform, most)
            for most in ((False,) if exact else (False, True))
        ]
    made = Plan(run, cluster, loads, memory, epochs, seconds, lacking, hosts, sample, notes)
    if made.across:
        notes.append(
            f"workers of system={run.system_name} read memory of another host's workers here, which cannot"
            " be: give a cluster of one host, or knobs that keep to a host"
        )
    return made


def _sized(run: Run, place: str) -> tuple[Loads, dict[str, np.ndarray], list[Traffic]]:
    """Of the run's own graph: partitioned as the run would, or taken from the cache."""
    settings = run.settings
    graph = json.loads(json.dumps(run.dataset.fingerprint(Path(settings.data_dir), settings.seed)))
    folder = shards_for(
        Cache(Path(settings.cache)),
        graph,
        lambda: run.dataset.graph(Path(settings.data_dir), settings.seed),
        run.partition,
        settings.workers,
        settings.seed,
    )
    check_supported(run, json.loads((folder / "stats.json").read_text()))
    shards = [io.load(folder, rank) for rank in range(settings.workers)]
    asked = Asked(settings.wire, settings.rows, settings.features_wire, run.combine, settings.epochs)
    parts = parts_of(shards, run.system, run.model, asked)
    loads = loads_of(shards, parts, run.system)
    found = [epoch_traffic(run.system, run.model, parts, epoch) for epoch in range(settings.epochs)]
    epochs = [traffic for traffic in found if traffic is not None]
    if isinstance(run.system, BatchSystem):
        return loads, {}, epochs
    # Where only a run can tell what is sent, memory is that of an exchange of all halo rows.
    sent = epochs or [halo_exchanges(parts, epoch, run.system.features) for epoch in (0, 1)]
    return loads, held(loads, parts, run.model, run.system, sent, place), epochs


def _extrapolated(
    run: Run, sample: float, place: str, notes: list[str]
) -> tuple[Loads, Loads, dict[str, np.ndarray], list[Traffic]]:
    """Of twins at `sample` and at half of it, every total between the two that `grown` gives: loads at the
    least and at the most, memory at the most, traffic as a range."""
    scale = getattr(run.dataset, "scale", None)
    if scale is None or getattr(run.dataset, "source", "twin") != "twin":
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
            _sized(dataclasses.replace(run, dataset=_at(run.dataset, each)), place)
            for each in (sample, sample / 2)
        )
    except InputError as error:
        raise InputError(f"sample={sample} plans twins at {sample:g} and {sample / 2:g}: {error}") from None

    def end(most: bool) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        return lambda large, small: grown(large, small, scale / sample)[most]

    notes.append(
        f"extrapolated to scale {scale:g} from twins at {sample:g} and {sample / 2:g}: every total lies"
        " between growing as the power of the scale that it grew by between them, and growing as the scale;"
        " memory is the larger (docs/howto/plan.md)"
    )
    fewest, loads = (
        Loads(
            **{
                name: _both(getattr(whole[0], name), getattr(half[0], name), end(most))
                for name in (field.name for field in dataclasses.fields(Loads))
            }
        )
        for most in (False, True)
    )
    memory = {name: end(True)(whole[1][name], half[1][name]) for name in whole[1]}
    for name in set(memory) & {"shared", "fetching"}:
        # They grow in steps, of which one between the two twins is no power of the scale.
        memory[name] = np.minimum(memory[name], whole[1][name] * scale / sample)
    return fewest, loads, memory, [_traffic(a, b, end) for a, b in zip(whole[2], half[2])]


def grown(large: np.ndarray, small: np.ndarray, times: float) -> tuple[np.ndarray, np.ndarray]:
    """What values [..] at a scale are at `times` that scale, at the least and at the most, from those at half
    of it.

    In all they grow as the power of the scale by which they grew, or as the scale: what is cut of a small
    graph grows by less than the graph does, of a large one as the graph. What did not grow stays; what had
    been nothing grows as the scale.
    """
    big, less = float(large.sum()), float(small.sum())
    if big == less:
        return large, large
    factors = times, times if less <= 0 else (big / less) ** math.log2(times) if big > 0 else 0.0
    return large * min(factors), large * max(factors)


def _at(dataset: Any, scale: float) -> Dataset:
    """The same twin at another scale."""
    made: Dataset = dataclasses.replace(dataset, scale=scale)
    return made


def _both(large: Any, small: Any, to_scale: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Any:
    if isinstance(large, np.ndarray):
        return to_scale(large, small)
    if isinstance(large, list) and large and isinstance(large[0], Layer):
        names = [field.name for field in dataclasses.fields(Layer)]
        return [Layer(*(to_scale(getattr(a, n), getattr(b, n)) for n in names)) for a, b in zip(large, small)]
    return large


def _traffic(
    large: Traffic, small: Traffic, end: Callable[[bool], Callable[[np.ndarray, np.ndarray], np.ndarray]]
) -> Traffic:
    made = Traffic(large.workers)
    key: Key
    for key in large.least:
        least = end(False)(large.least[key], small.least.get(key, large.least[key]))
        most = end(True)(large.most[key], small.most.get(key, large.most[key]))
        made.add(*key, least, most, route=large.route[key], ahead=key in large.ahead)
    return made
