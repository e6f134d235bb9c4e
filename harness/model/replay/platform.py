"""A cluster as a replay needs it: where each worker is, which links a message crosses, how long a byte takes.

    a message         crosses                                                           latency
    within a worker   nothing                                                           0
    within a host     out of one device, the host's bridge, into the other device       inside + bridge
    between hosts     the bridge, out of one host, into the other host, its bridge      between + 2 bridge

Where `broadcast_gbytes_per_s` is given, a broadcast's bytes pass the links between two devices, or two hosts,
at that rate: NCCL's broadcasts and its messages between pairs do not reach the same rates. The sizes of its
messages are scaled for that, so that a bridge on their way takes as many times as long too.

Each crossing is a link of its own in each direction: a device sends and receives at `inside.gbytes_per_s` at
once, a host at `between.gbytes_per_s`, and all devices of a host share `bridge.gbytes_per_s` towards it and
from it. A cluster without a bridge has none that anybody has to share. Messages between hosts do not cross
the links between the devices of a host.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.core.cluster import Cluster, Device, Link

GIGA = 1e9


@dataclass(frozen=True)
class Path:
    """What a message from one place to another crosses.

    links     indices into `Platform.capacity`; empty where nothing limits it
    latency   seconds before its first byte arrives
    where     "within a worker", "inside host 0", "host 0 to host 1"
    """

    links: tuple[int, ...]
    latency: float
    where: str


class Platform:
    """Links between the workers 0 .. P - 1 and a server, number P, on the first worker's host.

    cluster    whose links these are
    hosts      each worker's host
    capacity   bytes per second of each link; links without a limit are left out
    eager      whether a message leaves when its sender has posted it, instead of when both ends have
    assumed    what the cluster does not say, in words: latencies are taken for 0, and a rate to and from the
               server inside a host for infinite. Of a host with one worker, what is assumed inside it is
               known once a message has gone to the server or come from it
    cores      of each pool of cores that threads share; infinite where they share none
    pools      by worker, the pool that its threads are of: its host's
    device_cores   how many cores a device is made of: as many threads train on it
    """

    def __init__(self, cluster: Cluster, hosts: Sequence[int], eager: bool = False):
        self.cluster, self.hosts, self.eager = cluster, list(hosts), eager
        self.cores, self.pools, self.device_cores = math.inf, list(hosts), cluster.device_cores or 1
        self.path = functools.cache(self._path)
        every = sorted(set(hosts))
        used = ["inside"] * (len(hosts) > len(every)) + ["between"] * (len(every) > 1)
        for kind in used:
            if self._link(kind).gbytes_per_s is None:
                raise InputError(
                    f"cluster={cluster.name} does not say how fast its links {kind} are:"
                    f" give cluster.{kind}.gbytes_per_s=NUMBER"
                )
        if cluster.bridge.gbytes_per_s is not None:
            used.append("bridge")
        self.assumed = [f"{kind}.latency_us=0" for kind in used if self._link(kind).latency_us is None]
        self.capacity: list[float] = []
        self._numbers: dict[tuple[str, str, int], int] = {}  # of links that limit something
        for kind, places in (("inside", [*range(len(hosts) + 1)]), ("bridge", every), ("between", every)):
            rate = self._link(kind).gbytes_per_s
            if rate is not None and math.isfinite(rate):
                for place, way in product(places, ("out", "in")):
                    self._numbers[kind, way, place] = len(self.capacity)
                    self.capacity.append(GIGA * rate)

    def _link(self, kind: str) -> Link:
        link: Link = getattr(self.cluster, kind)
        return link

    def broadcast_size(self, source: int, target: int, size: int) -> int:
        """The bytes of a message that takes as long between two workers as one of `size` in a broadcast."""
        kind = "inside" if self._host(source) == self._host(target) else "between"
        link = self._link(kind)
        if link.broadcast_gbytes_per_s is None or link.gbytes_per_s is None:
            return size
        return round(size * link.gbytes_per_s / link.broadcast_gbytes_per_s)

    def _path(self, source: int, target: int) -> Path:
        """What a message from one worker (or the server) to another crosses: `path`, which keeps what it has
        found."""
        if source == target:
            return Path((), 0.0, "within a worker")
        ours, theirs = self._host(source), self._host(target)
        if ours == theirs:
            steps = [("inside", "out", source), ("bridge", "out", ours)]
            steps += [("bridge", "in", theirs), ("inside", "in", target)]
            latency = self._latency("inside") + self._latency("bridge")
            where = f"inside host {ours}"
            inside = self.cluster.inside
            for lacks, said in (
                (inside.gbytes_per_s is None, "inside.gbytes_per_s=inf"),
                (inside.latency_us is None, "inside.latency_us=0"),
            ):
                if lacks and said not in self.assumed:
                    self.assumed.append(said)
        else:
            steps = [("bridge", "out", ours), ("between", "out", ours)]
            steps += [("between", "in", theirs), ("bridge", "in", theirs)]
            latency = self._latency("between") + 2 * self._latency("bridge")
            where = f"host {ours} to host {theirs}"
        links = tuple(self._numbers[step] for step in steps if step in self._numbers)
        return Path(links, latency, where)

    def _host(self, place: int) -> int:
        return self.hosts[place] if place < len(self.hosts) else self.hosts[0]

    def _latency(self, kind: str) -> float:
        return (self._link(kind).latency_us or 0.0) / 1e6


def platform_of(
    cluster: Cluster, workers: int, per_host: int | None = None, cores: int | None = None
) -> Platform:
    """The platform of a run with so many workers on a described cluster: on its devices in their order, or
    `per_host` of them on each host in turn. InputError where the cluster names no devices or too few.

    cores   how many cores the threads of all hosts share, where hosts are parts of one machine; a device
            without `device_cores` then has one. None: the threads of a host share its `host_cores`, where the
            cluster gives these and `device_cores`
    """
    hosts = [device.host for device in devices_of(cluster, workers, per_host)]
    platform = Platform(cluster, hosts)
    if cores is not None:
        if cores < platform.device_cores:
            raise InputError(
                f"cores={cores} are fewer than a device of cluster={cluster.name} is made of: give"
                f" {platform.device_cores} or more"
            )
        platform.cores, platform.pools = cores, [0] * workers
    elif cluster.host_cores is not None and cluster.device_cores is not None:
        platform.cores = cluster.host_cores
    return platform


def devices_of(cluster: Cluster, workers: int, per_host: int | None = None) -> list[Device]:
    """Each worker's device: in their order, or the first `per_host` of each host in turn. InputError where
    the cluster has too few, or `per_host` leaves too few."""
    devices = cluster.devices
    cluster.check_workers(workers, "give another cluster, or a run of fewer workers")
    if per_host is not None:
        hosts = sorted({device.host for device in devices})
        of_host = [[device for device in devices if device.host == host] for host in hosts]
        left = workers
        for host, own in zip(hosts, of_host):
            wanted = min(per_host, left)
            if len(own) < wanted:
                raise InputError(
                    f"per_host={per_host} is too large: host {host} of cluster={cluster.name} has"
                    f" {counted(len(own), 'device')}; give fewer, or another cluster"
                )
            left -= wanted
        devices = [device for own in of_host for device in own[:per_host]]
        if len(devices) < workers:
            raise InputError(
                f"per_host={per_host} is too small for {counted(workers, 'worker')} on the"
                f" {counted(len(hosts), 'host')} of cluster={cluster.name}: give more, or another cluster"
            )
    return devices[:workers]


def instant(workers: int) -> Platform:
    """The platform of the machine that a run was made on. Messages take no time, since the traced waits hold
    it."""
    free = Link(gbytes_per_s=math.inf, latency_us=0)
    return Platform(Cluster("traced", inside=free, between=free), [0] * workers, eager=True)
