"""The typed schema of the block `cluster`: devices, one per worker, and the links between them; the values
stand in `conf/cluster/`.

What a source does not give stays null, and whoever needs it says so in one sentence. Training reads the
devices' times and memory and the host's memory (CaPGNN); links, bandwidths, peaks and rates describe the
testbed for what models it (`harness.model.replay`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from harness.base.errors import InputError, at_least, more_than, within_above

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
    id: int | None = None
    host: int = 0
    memory_gb: float | None = None
    memory_gbytes_per_s: float | None = None
    fp32_tflops: float | None = None
    launch_us: float | None = None
    mm_s: float | None = None
    spmm_s: float | None = None
    h2d_s: float | None = None
    d2h_s: float | None = None
    idt_s: float | None = None

    def __post_init__(self) -> None:
        at_least("host", self.host, 0)
        if self.launch_us is not None:
            at_least("launch_us", self.launch_us, 0)
        for name in ("memory_gb", "memory_gbytes_per_s", "fp32_tflops", *TIMES):
            if getattr(self, name) is not None:
                more_than(name, getattr(self, name), 0)


@dataclass
class Link:
    """A way between devices, in one direction.

    medium        its name
    gbytes_per_s  10^9 bytes per second from one device to another
    broadcast_gbytes_per_s   the same in a broadcast
    latency_us    microseconds before the first byte
    """

    medium: str | None = None
    gbytes_per_s: float | None = None
    broadcast_gbytes_per_s: float | None = None
    latency_us: float | None = None

    def __post_init__(self) -> None:
        for name in ("gbytes_per_s", "broadcast_gbytes_per_s"):
            if getattr(self, name) is not None:
                more_than(name, getattr(self, name), 0)
        if self.latency_us is not None:
            at_least("latency_us", self.latency_us, 0)


@dataclass
class Rate:
    """How near a kind of work comes to what the devices' peak and memory allow, at one shape; between shapes
    it is interpolated (`harness.model.replay.roofline`).

    kind        of `harness.comm.work`
    width       of its rows; of a dense product its narrowest side. 0: any
    size        of a sparse product and an edge softmax the rows that are gathered from, else bytes. 0: any
    degree      entries per row. 0: any
    efficiency  seconds that the roofline allows over seconds that it takes; above 1 where caches answer
    low, high   the same at the slowest and the fastest of the measurements of which it is the median
    """

    kind: str = "dense"
    width: int = 0
    size: int = 0
    degree: int = 0
    efficiency: float = 1.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("width", "size", "degree"):
            at_least(name, getattr(self, name), 0)
        more_than("efficiency", self.efficiency, 0)


@dataclass
class Fit:
    """What a testbed reached on a graph, fitted to one row that its paper prints (`halobench cluster fit`).

    graph        its name, without "twin/"
    source       the row: where it stands in `harness/papers/claims/published.yaml`
    efficiency   of all work: seconds that the devices' speeds allow over seconds that it took; above 1 where
                 caches answer
    inside_gbytes_per_s, between_gbytes_per_s   the rates that links of these kinds reached, of pairs and of
                 broadcasts alike; null: as the cluster has them
    """

    graph: str = ""
    source: str = ""
    efficiency: float = 1.0
    inside_gbytes_per_s: float | None = None
    between_gbytes_per_s: float | None = None

    def __post_init__(self) -> None:
        more_than("efficiency", self.efficiency, 0)
        for name in ("inside_gbytes_per_s", "between_gbytes_per_s"):
            if getattr(self, name) is not None:
                more_than(name, getattr(self, name), 0)


@dataclass
class Cluster:
    """Devices in rank order and what joins them.

    name     of the testbed; "measured": the devices are those of the run, measured when it starts
    devices  one per worker; a run with fewer workers takes the first
    matrix   rows of the matrix that the devices' times are of
    density  share of the entries of the sparse one that are not 0
    inside   the link between two devices of one host
    bridge   the link that all devices of a host share
    between  the link from host to host
    host_memory_gb   GiB of memory of one host
    host_cores   CPU cores of one host
    device_cores   how many of them a device is made of; null: of none, as a GPU
    rates    of each kind of work at the shapes at which it was measured, on any of the devices: for each kind
             every width with every size and degree
    fits     what it reached on each graph, fitted to printed numbers
    """

    name: str = "measured"
    devices: list[Device] = field(default_factory=list)
    matrix: int | None = None
    density: float | None = None
    inside: Link = field(default_factory=Link)
    bridge: Link = field(default_factory=Link)
    between: Link = field(default_factory=Link)
    host_memory_gb: float | None = None
    host_cores: int | None = None
    device_cores: int | None = None
    rates: list[Rate] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.matrix is not None:
            at_least("matrix", self.matrix, 1)
        if self.density is not None:
            within_above("density", self.density, 0, 1)
        if self.host_memory_gb is not None:
            more_than("host_memory_gb", self.host_memory_gb, 0)
        for name in ("host_cores", "device_cores"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        if self.host_cores is not None and (self.device_cores or 0) > self.host_cores:
            raise InputError(
                f"device_cores={self.device_cores} is more than host_cores={self.host_cores}: a device is"
                " made of cores of its host"
            )
        hosts = sorted({device.host for device in self.devices})
        if hosts != list(range(len(hosts))):
            raise InputError(f"devices name the hosts {hosts}: number hosts from 0 without a gap")

    @property
    def measured(self) -> bool:
        """Whether the devices are the run's own: none is named."""
        return not self.devices

    def check_workers(self, workers: int) -> None:
        """InputError where a run has more workers than the cluster has devices."""
        if self.devices and workers > len(self.devices):
            raise InputError(
                f"workers={workers} is more than cluster={self.name} has devices ({len(self.devices)}); "
                f"give workers={len(self.devices)} or fewer, or cluster=measured"
            )

    def with_devices(self, devices: Sequence[Device]) -> Cluster:
        return dataclasses.replace(self, devices=list(devices))


def relative(devices: Sequence[Device], name: str) -> list[float]:
    """A time of every device over the slowest's, in (0, 1]; all 1 where no device states it.

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
