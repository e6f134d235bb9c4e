"""The typed schema of the block `cluster`: devices, one per worker, and the links between them; the values
stand in `conf/cluster/`.

What a source does not give stays null, and what needs it is refused in one sentence. Training reads the
devices' times and memory and the host's memory (CaPGNN); links, bandwidths, peaks and rates describe the
testbed for the replay (`harness.model.replay`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.base.bounds import MOST, number
from harness.base.errors import InputError

GIB = 1024**3
TIMES = ("mm_s", "spmm_s", "h2d_s", "d2h_s", "idt_s")


@dataclass
class Device:
    """One worker's device. Times are of one pass over a square float32 matrix of the cluster's `matrix` rows.

    kind            the model
    id              which of its kind
    host            0-based
    memory_gb       GiB of device memory
    memory_gbytes_per_s   10^9 bytes per second from and to that memory
    fp32_tflops     peak of single precision
    launch_us       microseconds that an operation takes, however small it is
    mm_s            seconds of a dense matrix product
    spmm_s          seconds of a sparse matrix product
    h2d_s           seconds of a copy from host to device
    d2h_s           seconds of a copy from device to host
    idt_s           seconds of a copy inside the device
    """

    kind: str = "device"
    id: int | None = number(None)
    host: int = number(0)
    memory_gb: float | None = number(None, above=True)
    memory_gbytes_per_s: float | None = number(None, above=True)
    fp32_tflops: float | None = number(None, above=True)
    launch_us: float | None = number(None)
    mm_s: float | None = number(None, above=True)
    spmm_s: float | None = number(None, above=True)
    h2d_s: float | None = number(None, above=True)
    d2h_s: float | None = number(None, above=True)
    idt_s: float | None = number(None, above=True)


@dataclass
class Link:
    """A way between devices, in one direction.

    medium        its name
    gbytes_per_s  10^9 bytes per second from one device to another
    broadcast_gbytes_per_s   the same in a broadcast
    latency_us    microseconds before the first byte
    """

    medium: str | None = None
    gbytes_per_s: float | None = number(None, above=True)
    broadcast_gbytes_per_s: float | None = number(None, above=True)
    latency_us: float | None = number(None)


@dataclass
class Rate:
    """How near a kind of work comes to what the devices' peak and memory allow, at one shape; between shapes
    it is interpolated (`harness.model.replay.roofline`).

    kind        which kind of work, as `harness.comm.work` names them
    width       values per row; for a dense product the shortest of its three sides. 0: any
    size        for a sparse product and an edge softmax the rows that are gathered from, else bytes. 0: any
    degree      entries per row. 0: any
    efficiency  seconds that the roofline allows over seconds that the work takes; above 1 where caches answer
    low, high   efficiency of the slowest and of the fastest measurement; `efficiency` is the median of all
    """

    kind: str = "dense"
    width: int = number(0)
    size: int = number(0, 0, 2**63 - 1)
    degree: int = number(0)
    efficiency: float = number(1.0, 0, MOST, above=True)
    low: float | None = number(None, above=True)
    high: float | None = number(None, above=True)


UNFITTED = "could not be fitted to"  # what is said where a fit misses


@dataclass
class Fit:
    """What a testbed reached on a graph, fitted to one row that its paper prints (`halobench cluster fit`).

    graph        its name, without "twin/"
    source       the row: where it stands in `harness/papers/claims/published.yaml`
    efficiency   of all work: seconds that the devices' speeds allow over seconds that it took; above 1 where
                 caches answer
    inside_gbytes_per_s, between_gbytes_per_s   the rates that links of these kinds reached, of pairs and of
                 broadcasts alike; null: as the cluster has them
    missed_by    by how many times the row's own seconds are off the printed ones, where no rate gives these
    """

    graph: str = ""
    source: str = ""
    efficiency: float = number(1.0, 0, MOST, above=True)
    inside_gbytes_per_s: float | None = number(None, above=True)
    between_gbytes_per_s: float | None = number(None, above=True)
    missed_by: float = number(1.0, above=True)


@dataclass
class Cluster:
    """Devices in rank order and what joins them.

    name     of the testbed; "measured": the devices are those of the run, measured when it starts
    devices  one per worker; a run with fewer workers takes the first
    matrix   rows of the matrix that the devices' times are of
    density  share of the entries of the sparse matrix that are not 0
    inside   the link between two devices of one host
    bridge   the link that all devices of a host share
    between  the link from host to host
    host_memory_gb   GiB of memory of one host
    host_cores   CPU cores of one host
    device_cores   how many of its host's cores a device is made of; null: of none, as a GPU
    rates    the efficiency of each kind of work at the shapes at which it was measured, on any device: for
             each kind every width with every size and degree
    fits     what it reached on each graph, fitted to printed numbers
    """

    name: str = "measured"
    devices: list[Device] = field(default_factory=list)
    matrix: int | None = number(None, 1)
    density: float | None = number(None, 0, 1, above=True)
    inside: Link = field(default_factory=Link)
    bridge: Link = field(default_factory=Link)
    between: Link = field(default_factory=Link)
    host_memory_gb: float | None = number(None, above=True)
    host_cores: int | None = number(None, 1)
    device_cores: int | None = number(None, 1)
    rates: list[Rate] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.host_cores is not None and (self.device_cores or 0) > self.host_cores:
            raise InputError(
                f"device_cores={self.device_cores} is more than host_cores={self.host_cores}: a device is"
                " made of cores of its host"
            )
        if self.bridge.broadcast_gbytes_per_s is not None:
            raise InputError(
                f"bridge.broadcast_gbytes_per_s={self.bridge.broadcast_gbytes_per_s:g}: broadcasts have a"
                " rate of their own inside and between hosts alone; leave it out"
            )
        hosts = sorted({device.host for device in self.devices})
        if hosts != list(range(len(hosts))):
            raise InputError(f"devices name the hosts {hosts}: number hosts from 0 without a gap")

    @property
    def measured(self) -> bool:
        """Whether the devices are the run's own: none is named."""
        return not self.devices

    def check_workers(self, workers: int, mend: str = "") -> None:
        """InputError where a run has more workers than the cluster has devices.

        mend   what to give instead, for a run that has ended; "" for one that is to come
        """
        if self.devices and workers > len(self.devices):
            raise InputError(
                f"workers={workers} is more than cluster={self.name} has devices ({len(self.devices)}); "
                + (mend or f"give workers={len(self.devices)} or fewer, or cluster=measured")
            )

    def with_devices(self, devices: Sequence[Device]) -> Cluster:
        return dataclasses.replace(self, devices=list(devices))


def relative(devices: Sequence[Device], name: str) -> list[float]:
    """The time `name` of every device over the slowest's, in (0, 1]; all 1 where no device states it.

    Raises InputError where some devices state it and others do not.
    """
    times = [getattr(device, name) for device in devices]
    if all(time is None for time in times):
        return [1.0] * len(times)
    if any(time is None for time in times):
        lacking = devices[times.index(None)]
        raise InputError(
            f"cluster.devices lacks {name} of {lacking.kind}: give it for every device or for none"
        )
    return [time / max(times) for time in times]
