"""halobench cluster measure [--out FILE.yaml]: this machine as a cluster, for `cluster=FILE.yaml`."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml

from harness.base.errors import InputError, at_least, check_place, writing
from harness.base.heap import keep_freed_memory
from harness.base.machine import cache_bytes
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.comm.recorder import cpu_count
from harness.core import cluster_measure as devices
from harness.core.cluster import GIB, TIMES, Cluster, Link
from harness.dev.bench.load import Load, Watch
from harness.model.calibrate import links, speeds
from harness.model.calibrate.links import Measured
from harness.model.calibrate.speeds import Speeds, Spread

DESCRIPTION = """\
Measure this machine: a core's memory and products at a few shapes, and what two processes exchange. Prints
it, and with --out writes a cluster for `halobench replay RUN... cluster=FILE.yaml compute=roofline`. Takes
less than a minute. Cores only: GPUs are not measured.
"""
LEVELS = (1, 2, 3)  # of caches


@command("halobench cluster measure")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=DESCRIPTION, formatter_class=AS_WRITTEN)
    parser.add_argument("--out", metavar="FILE.yaml", type=Path, help="write the cluster there")
    parser.add_argument(
        "--devices",
        metavar="N",
        type=int,
        help="devices that each host has, one core each (default: the cores)",
    )
    parser.add_argument(
        "--hosts", metavar="N", type=int, default=1, help="hosts like this machine (default 1)"
    )
    given = parser.parse_args(words)
    if given.out is not None:
        if given.out.suffix != ".yaml":
            raise InputError(
                f"--out {given.out} is not named FILE.yaml: cluster= takes files of that name only"
            )
        check_place("out", given.out)
    if given.devices is not None:
        at_least("--devices", given.devices, 1)
    at_least("--hosts", given.hosts, 1)
    name = given.out.stem if given.out is not None else "local"
    text = described(given.devices or cpu_count(), name, given.hosts)
    print(text)
    if given.out is not None:
        with writing(given.out, "give another --out"):
            given.out.write_text(text + "\n")
        print(f"written: {given.out}; halobench replay RUN... cluster={given.out} compute=roofline")


def described(count: int, name: str, hosts: int = 1) -> str:
    """So many hosts like this machine, of `count` devices each, as the text of a cluster's file."""
    keep_freed_memory()  # as workers do: pages that are faulted in again would be part of every pass
    watch = Watch()
    found = speeds.measure(told=lambda what: print(f"measuring {what}", file=sys.stderr))
    print("measuring links", file=sys.stderr)
    linked = links.measure()
    return as_yaml(cluster_of(found, linked, count, name, hosts), found, linked, watch.load())


def cluster_of(found: Speeds, linked: Sequence[Measured], count: int, name: str, hosts: int = 1) -> Cluster:
    """`count` devices of one core on each host, linked by the first transport; between hosts by the last."""
    with speeds.one_thread():
        times = devices.measure(torch.device("cpu"), 0, count)
    one = dataclasses.replace(
        times,
        memory_gb=_digits(times.memory_gb),
        memory_gbytes_per_s=_digits(found.copied.median / 1e9),
        fp32_tflops=_digits(found.multiplied.median / 1e12),
        launch_us=_digits(1e6 * found.launch.median),
    )
    for each in TIMES:
        setattr(one, each, _digits(getattr(times, each)))
    inside, between = (_link(linked[at]) for at in (0, -1))
    return Cluster(
        name=name,
        devices=[
            dataclasses.replace(one, id=number, host=number // count) for number in range(hosts * count)
        ],
        matrix=devices.ROWS["cpu"],
        inside=inside,
        between=between,
        host_memory_gb=_digits(devices.host_memory() / GIB),
        host_cores=cpu_count(),
        device_cores=1,
        rates=found.rates,
    )


def _link(of: Measured) -> Link:
    media = {"memory": "shared memory", "sockets": "sockets over loopback"}
    return Link(
        medium=media[of.transport],
        gbytes_per_s=_digits(of.rate.median / 1e9),
        latency_us=_digits(1e6 * of.latency.median),
    )


def _digits(x: float | None) -> float:
    assert x is not None
    return float(f"{x:.4g}")


def as_yaml(cluster: Cluster, found: Speeds, linked: Sequence[Measured], load: Load) -> str:
    """The cluster's file: how it was measured in comments, a line per device and rate."""
    block = dataclasses.asdict(cluster)
    caches = ", ".join(
        f"L{level} {cache_bytes(level) / 2**20:g} MiB" for level in LEVELS if cache_bytes(level)
    )
    lines = [
        f"# {devices.processor()}, {cpu_count()} of {os.cpu_count()} cores; caches: {caches or 'unknown'}.",
        "# Measured by halobench cluster measure. A device is one core, alone: processor time of one thread.",
        "# Medians (least to greatest):",
        f"#   memory, a copy's bytes read and written  {_range(found.copied, 1e-9)} GB/s",
        f"#   dense products at their fastest          {_range(found.multiplied, 1e-9)} Gflop/s",
        f"#   launch                                   {_range(found.launch, 1e6)} us",
    ]
    lines += [
        f"#   {each.transport + ', two processes':<40} {_range(each.rate, 1e-9)} GB/s each way,"
        f" {_range(each.latency, 1e6)} us (wall time)"
        for each in linked
    ]
    if cluster.devices[-1].host:
        lines.append("# Hosts are taken to be alike, and links between them to be sockets over loopback.")
    lines.append(f"# {load}.")
    if load.busy:
        lines.append(
            "# The machine was busy: processor time hides most of that, the links' wall time does not."
        )
    block["devices"] = [{k: v for k, v in each.items() if v is not None} for each in block["devices"]]
    values = yaml.safe_dump(block, default_flow_style=None, sort_keys=False, width=10**6)
    return "\n".join([*lines, values.rstrip()])


def _range(of: Spread, unit: float) -> str:
    return "{:.4g} ({:.4g} to {:.4g})".format(*(unit * each for each in of))
