"""What a run over shards that are all on this machine sends, holds and computes, from the trace of its dry
run; and how long that would take on a described cluster (docs/howto/plan.md derives it)."""

import copy
import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from harness.base.hollow import Unknown
from harness.comm.comm import Comm
from harness.core.cluster import Cluster, Device
from harness.core.kernels.spmm import Kernel
from harness.core.order import FIXED, Order
from harness.core.trainer import Trainer
from harness.model.plan.dry import AnyShard, Ran, dry_run
from harness.model.replay.program import Operation, Program, Work, held_up, scaled
from harness.model.replay.read import program_of
from harness.model.replay.roofline import Roofline, has_peaks
from harness.results.files import write_yaml_atomic
from harness.results.reader import Trace
from harness.results.writer import TraceWriter
from harness.run.config import Run

EPOCHS = 21  # of a dry run at least, where its run has so many
# Bytes of a worker's process that has trained on next to nothing, measured: Linux on x86-64, CPython 3.11,
# torch's build for the CPU.
PROCESS = 300e6
CONTEXT = 500e6  # bytes of a CUDA context with its libraries' code and workspaces; assumed
MODELLED = ("dense", "sparse", "stream", "drop", "pack", "code")  # kinds of work that most runs have
LAUNCH_US = 5.0  # microseconds per operation on a GPU, where the cluster does not say it; assumed
EFFICIENCY = 0.5  # of a device's peaks, for kinds of work that the cluster gives no rate of; assumed

COUNTED = ["epoch", "layer", "direction", "purpose"]  # by which a trace counts bytes
ENDS = ["least", "most"]


@dataclass
class Sized:
    """What a run takes.

    memory     by what it is for, [P] bytes of each worker
    bytes      what is sent, as columns `least` and `most`: a row by COUNTED (layer -1: none), `worker`, which
               counts it, and `peer` (-1: a store or a server)
    programs   the run as a replay takes it: at the least and at the most bytes, or one program where no value
               decides which
    lacking    why there is none of all this, since only a run can tell; "" where there is
    """

    memory: dict[str, np.ndarray]
    bytes: pd.DataFrame
    programs: list[Program]
    lacking: str


def sized(run: Run, shards: Sequence[AnyShard], place: str, cluster: Cluster) -> Sized:
    """What a run takes on devices of a cluster, by dry runs. Where a dry run cannot tell, everything is empty
    but `lacking`.

    place   "cuda"; "cpu"; or "memory" where workers on the CPU exchange through memory that they share
    """
    try:
        runs = _ran(run, shards, place, cluster)
    except Unknown as unknown:
        why = (
            f"what {run.system_name} sends depends on {unknown}, which a dry run does not have: give probe=10"
        )
        return Sized({}, pd.DataFrame(columns=[*COUNTED, *ENDS]), [], why)
    memory = {name: np.maximum(size, runs[-1].memory[name]) for name, size in runs[0].memory.items()}
    memory = {"process": np.full(len(shards), CONTEXT if place == "cuda" else PROCESS), **memory}
    if place == "cuda":
        del memory["mapped"]  # which is the host's, and not the GPU's
    programs = [_program(ran, cluster) for ran in runs]
    if (slow := run.straggler) is not None:
        delay = slow.delay + slow.delay_spread / 2  # the mean of what is drawn
        programs = [held_up(program, slow.rank, delay, slow.slowdown) for program in programs]
    return Sized(memory, _bytes(runs), programs, "")


def traffic(run: Run, shards: Sequence[AnyShard], place: str, cluster: Cluster) -> list[tuple[int, int]]:
    """The least and the most bytes of each of a run's first epochs; empty where only a run can tell.
    Parameters are those of `sized`."""
    try:
        runs = _ran(run, shards, place, cluster)
    except Unknown:
        return []
    sent = _bytes(runs).groupby("epoch")[ENDS].sum().reindex(range(len(runs[0].epochs[0])), fill_value=0)
    return [(int(least), int(most)) for _, least, most in sent.itertuples()]


def dry_epochs(run: Run) -> np.ndarray:
    """For each epoch of a run's dry run, how many epochs of the run it stands for: itself and those that
    repeat it. A dry run has the epochs before its system repeats itself (`System.repeats`), and then whole
    periods."""
    epochs = run.settings.epochs
    begin, period = (min(each, epochs) for each in run.system.repeats(epochs))
    several = period * max(1, math.ceil((EPOCHS - begin) / period))
    every = np.arange(epochs)
    return np.bincount(np.where(every < begin, every, begin + (every - begin) % several))


def _ran(run: Run, shards: Sequence[AnyShard], place: str, cluster: Cluster) -> list[Ran]:
    """Dry runs: one with the least bytes and, where values decide something, one with the most. Raises
    `Unknown` where what is sent depends on values in another way."""
    settings, epochs = run.settings, len(dry_epochs(run))

    def make(shard: Any, comm: Comm, kernel: Kernel) -> Trainer:
        return Trainer(
            shard, comm, copy.deepcopy(run.system), run.model, run.optimiser,
            seed=settings.seed, epochs=settings.epochs, schedule=run.schedule, evaluate=run.evaluate,
            kernel=kernel, cluster=cluster, order=Order(settings.order, FIXED), rows=settings.rows,
            combine=run.combine, features_wire=settings.features_wire, labels=run.labels,
        )  # fmt: skip

    dry = partial(
        dry_run, shards, make, epochs, wire=settings.wire, place=place, scored=bool(run.evaluate.every),
        compiled=settings.kernel in ("auto", "numba"),
    )  # fmt: skip
    least = dry()
    return [least, dry(most=True)] if least.asked else [least]


def _bytes(runs: Sequence[Ran]) -> pd.DataFrame:
    """What dry runs counted, as of `Sized`."""
    keys = [*COUNTED, "worker", "peer"]
    sent = [
        pd.DataFrame(
            [
                (epoch, *key[:3], rank, key[3], size)
                for rank, own in enumerate(ran.epochs)
                for epoch, counted in enumerate(own)
                for key, (_, size) in counted.sent.items()
            ],
            columns=[*keys, "bytes"],
        ).set_index(keys)["bytes"]
        for ran in (runs[0], runs[-1])
    ]
    both = pd.concat(sent, axis=1).fillna(0).astype(float)
    return pd.DataFrame({"least": both.min(axis=1), "most": both.max(axis=1)}).reset_index()


def _program(ran: Ran, cluster: Cluster) -> Program:
    """The program of a dry run, whose trace is written to a temporary folder and read as that of any run."""
    workers = len(ran.epochs)
    with tempfile.TemporaryDirectory() as folder:
        config = {"system": {}, "dataset": {}, "workers": workers}
        write_yaml_atomic(Path(folder) / "config.yaml", yaml.safe_dump(config))
        for rank, epochs in enumerate(ran.epochs):
            writer = TraceWriter(Path(folder), rank, 0)
            for epoch in epochs:
                writer.write(epoch, loss=None, scores=None, peak_rss_bytes=0)
            writer.close()
        lasts = Roofline(cluster, workers, unmeasured=EFFICIENCY, uncounted="none", peaks_needed=False)
        return program_of(Trace(folder), "wall", lasts=lasts)


def with_launches(cluster: Cluster) -> tuple[Cluster, list[str]]:
    """The cluster with LAUNCH_US for each GPU that does not give its launch time, and what was assumed, in
    words. A cluster with rates or with cores per device is one of processors, and stays as it is."""
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
    """How a plan times work on a device of a cluster, in words: by `harness.model.replay.roofline`, at
    EFFICIENCY where the cluster gives no rates."""
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
    """A program at another scale, extrapolated from `program` and from the one at a smaller scale.

    All work of one kind, name and layer is multiplied by one factor, and so are the bytes of all operations
    of one name and layer. The factor takes their total over workers and epochs to `to_scale(total, smaller
    total)`.
    """
    totals, less = _totals(program), _totals(smaller)
    times = {key: to_scale(total, less.get(key, 0.0)) / (total or 1.0) for key, total in totals.items()}
    return scaled(program, lambda step: times[_of(step)], lambda operation: times[_of(operation)])


def _of(each: Work | Operation) -> tuple[str, str, int]:
    """What work, or an operation, grows with."""
    return each.kind if isinstance(each, Work) else "sent", each.name, each.layer


def _totals(program: Program) -> dict[tuple[str, str, int], float]:
    """Seconds of all work, and bytes of all operations, by what they grow with."""
    total: dict[tuple[str, str, int], float] = defaultdict(float)
    for step in (step for line in program.steps for step in line if isinstance(step, Work)):
        total[_of(step)] += step.seconds
    for each in program.operations:
        total[_of(each)] += sum(sum(part.values()) for part in each.parts.values())
    return total
