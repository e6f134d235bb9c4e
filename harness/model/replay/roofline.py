"""Seconds of what a segment computed, on a described device.

    t = launch + max(flops / peak, (read + written) / memory rate) / efficiency(kind, shape)

peak, memory rate and launch are the device's. Where a cluster has measured seconds of its devices' products
and no rates (Table 1 of CaPGNN), these give the peak of dense products, and the memory rate of what gathers:

    peak = 2 n^3 / mm_s        memory rate = bytes of a product over a sparse n x n matrix / spmm_s

so that what a system knows of its devices and what a replay makes of them come from one table. The efficiency
is the cluster's, measured at a few shapes for each kind (`halobench cluster measure`) and interpolated
between them: linearly over the logarithms of width, size and degree, and constant beyond what was measured. A
kind that the cluster gives no rate has efficiency 1. A segment that says nothing of what it computed lasts as
traced.

On a device whose peaks the cluster does not say, a plan takes `harness.core.order.FIXED`: nanoseconds per
entry and per multiply-add of a processor's core, and nothing for what is no product.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from harness.base.errors import InputError
from harness.comm.work import KINDS, Work, sparse
from harness.core.cluster import Cluster, Device, Rate
from harness.core.order import FIXED, Shape
from harness.model.replay.platform import devices_of

GATHERS = ("sparse", "attention")  # kinds whose size is that of what they gather from
AXES = ("width", "size", "degree")


def shape_of(work: Work) -> tuple[int, int, int]:
    """Width, size and degree by which its efficiency is looked up (`harness.core.cluster.Rate`)."""
    if work.kind in GATHERS:
        return work.width, work.columns, round(work.entries / max(work.rows, 1))
    narrowest = min(work.rows, work.columns, work.width) if work.kind == "dense" else work.width
    size = work.read + work.written
    if work.kind == "pack":
        # Rows that are scattered over a table take as long per byte as if the whole table were moved.
        size = max(size, 2 * work.columns * work.written // max(work.rows, 1))
    return narrowest, size, 0


class Efficiency:
    """The efficiency of one kind of work at any shape, interpolated between the shapes of its rates.
    InputError where the rates are no grid."""

    def __init__(self, cluster: str, rates: Sequence[Rate]):
        self.axes = [sorted({getattr(rate, axis) for rate in rates}) for axis in AXES]
        known = {tuple(getattr(rate, axis) for axis in AXES): rate.efficiency for rate in rates}
        absent = sorted(set(product(*self.axes)) - known.keys())
        if absent or len(known) < len(rates):
            width, size, degree = absent[0] if absent else next(iter(known))
            raise InputError(
                f"cluster={cluster} gives rates of {rates[0].kind} that are no grid:"
                f" width {width}, size {size}, degree {degree} is {'missing' if absent else 'there twice'};"
                " give every width with every size and degree once"
            )
        cells = [known[cell] for cell in product(*self.axes)]
        # Inverses are interpolated, seconds per byte: what an operation takes is a sum of its parts' seconds.
        self.inverse = (1.0 / np.array(cells)).reshape([len(axis) for axis in self.axes])

    def at(self, shape: tuple[int, int, int]) -> float:
        """The efficiency at a shape (width, size, degree)."""
        values = self.inverse
        for axis, place in zip(self.axes, shape):
            values = _between(place, axis, values)
        return 1.0 / float(values)


def _between(place: int, axis: Sequence[int], values: np.ndarray) -> np.ndarray:
    """`values` along their first axis at a place of it, linear over the logarithm, constant outside."""
    if len(axis) == 1:
        return np.asarray(values[0])
    logs = np.log(np.maximum(axis, 1))
    at = min(max(math.log(max(place, 1)), logs[0]), logs[-1])
    after = min(max(int(np.searchsorted(logs, at)), 1), len(axis) - 1)
    share = (at - logs[after - 1]) / (logs[after] - logs[after - 1])
    return np.asarray(values[after - 1] * (1 - share) + values[after] * share)


def has_peaks(device: Device) -> bool:
    """Whether the cluster says a device's peak and its rate of memory."""
    return device.fp32_tflops is not None and device.memory_gbytes_per_s is not None


def _on_a_core(work: Work) -> float:
    if work.kind == "dense":
        return FIXED.dense(work.rows, work.columns, work.width) / 1e9
    if work.kind == "sparse":
        return FIXED.sparse(Shape(work.rows, work.columns, work.entries), work.width) / 1e9
    return 0.0


class Roofline:
    """What work, and segments of it, last on a cluster's devices, as the module says. InputError where the
    cluster gives rates of an unknown kind of work, or rates that are no grid.

    modelled, kept   seconds of segments so far: of what was counted, and of those that last as traced
    traced           CPU seconds that the counted ones took in the trace
    noted            whether these three grow: not in a run's first epoch, which makes what is made once

    unmeasured       efficiency of a kind of which the cluster gives neither rates nor measured products
    overall          efficiency of all work, on top of its kind's
    grown            how many times as long the counted work of layers takes
                     (`harness.model.replay.program.grown`)
    uncounted        "traced", or "none": segments that say nothing of what they computed take no time
    peaks_needed     whether a device whose peaks the cluster does not say is refused, by InputError
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: int,
        per_host: int | None = None,
        unmeasured: float = 1.0,
        overall: float = 1.0,
        grown: float = 1.0,
        uncounted: str = "traced",
        peaks_needed: bool = True,
    ):
        self.unmeasured, self.overall, self.grown, self.uncounted = unmeasured, overall, grown, uncounted
        self.devices = devices_of(cluster, workers, per_host)
        for device in self.devices if peaks_needed else ():
            for name, what in (("fp32_tflops", "peak"), ("memory_gbytes_per_s", "rate of memory")):
                if getattr(device, name) is None:
                    raise InputError(
                        f"cluster={cluster.name} does not say the {what} of its {device.kind} ({name}), which"
                        " compute=roofline needs: give compute=traced, or a cluster that says it"
                    )
        by_kind: dict[str, list[Rate]] = {}
        for rate in cluster.rates:
            if rate.kind not in KINDS:
                raise InputError(
                    f"cluster={cluster.name} gives a rate of {rate.kind}, which is no kind of work; known:"
                    f" {', '.join(KINDS)}"
                )
            by_kind.setdefault(rate.kind, []).append(rate)
        self.efficiencies = {kind: Efficiency(cluster.name, rates) for kind, rates in by_kind.items()}
        # Operations of the dense product that gives `mm_s`, and bytes of the sparse one that gives `spmm_s`.
        self.flops = self.gathered = 0.0
        if (n := cluster.matrix) is not None:
            self.flops = 2.0 * n**3
            gathered = sparse(n, n, round((cluster.density or 0) * n * n), n, 4, values=True)
            self.gathered = float(gathered.read + gathered.written) if cluster.density else 0.0
        self.modelled = self.kept = self.traced = 0.0
        self.noted = True
        self.met: set[str] = set()  # kinds of work
        self.known: dict[tuple[int, Work], float] = {}  # seconds by worker and work: epochs repeat their work

    def measured(self, kind: str, device: Device) -> float:
        """Operations per second of dense work, or bytes per second of work that gathers, by a measured
        product of the device; 0 of a kind that has rates, or where nothing was measured."""
        if kind in self.efficiencies or kind not in ("dense", *GATHERS):
            return 0.0
        amount, seconds = (self.flops, device.mm_s) if kind == "dense" else (self.gathered, device.spmm_s)
        return amount / seconds if seconds else 0.0

    def seconds(self, work: Work, device: Device) -> float:
        """Seconds of one launch of the work, the launch itself included; of a device without peaks by
        FIXED."""
        if device.fp32_tflops is None or device.memory_gbytes_per_s is None:
            return _on_a_core(work)
        peak, rate = 1e12 * device.fp32_tflops, 1e9 * device.memory_gbytes_per_s
        if measured := self.measured(work.kind, device):
            peak, rate = (measured, rate) if work.kind == "dense" else (peak, measured)
        allowed = max(work.flops / peak, (work.read + work.written) / rate)
        reached = 1.0 if measured else self.unmeasured
        if (efficiency := self.efficiencies.get(work.kind)) is not None:
            reached = efficiency.at(shape_of(work))
        return (device.launch_us or 0.0) / 1e6 + allowed / (reached * self.overall)

    @property
    def assumed(self) -> list[str]:
        """What the cluster does not say of the work met so far, in words."""
        said = [
            f"efficiency {self.unmeasured:g} of {kind}"
            for kind in KINDS
            if kind in self.met - self.efficiencies.keys()
            and not all(self.measured(kind, device) for device in self.devices)
        ]
        fitted = [f"efficiency {self.overall:g} of all work"] if self.overall != 1 else []
        return [*said, *fitted, *(["launch_us=0"] if any(d.launch_us is None for d in self.devices) else [])]

    def segment(
        self, worker: int, layer: int, done: Iterable[Mapping[str, Any]], traced: float, cpu: float
    ) -> float:
        """Seconds of a worker's segment. Segments without counted work last `traced`, or no time
        (`uncounted`).

        layer   -1: none
        done    the elements of the segment's `work` in the trace
        cpu     CPU seconds that it took in the trace
        """
        grown, total, some = self.grown if layer >= 0 else 1.0, 0.0, False
        launch = (self.devices[worker].launch_us or 0.0) / 1e6 if has_peaks(self.devices[worker]) else 0.0
        for each in done:
            some = True
            work = Work(*(each[name] for name in Work._fields))
            self.met.add(work.kind)
            if (worker, work) not in self.known:
                self.known[worker, work] = self.seconds(work, self.devices[worker])
            total += each["launches"] * (grown * (self.known[worker, work] - launch) + launch)
        traced *= grown
        if not some and self.uncounted == "none":
            traced = 0.0
        if self.noted:
            self.kept += 0.0 if some else traced
            self.modelled += total
            self.traced += cpu if some else 0.0
        return total if some else traced

    def said(self) -> str:
        """How the modelled seconds of the segments noted compare with the traced ones, in a sentence."""
        share = self.kept / max(self.modelled + self.kept, 1e-300)
        rest = f"{share:.1%} of the replay's work is not counted, and lasts as traced"
        if self.uncounted == "none":
            rest = "what is not counted takes no time"
        ratio = f"{self.modelled / self.traced:.2f}" if self.traced else "no"
        return (
            f"work that is counted takes {1e3 * self.modelled:.3f} ms over all workers and epochs without the"
            f" first, {ratio} of the {1e3 * self.traced:.3f} CPU ms of the trace; {rest}"
        )
