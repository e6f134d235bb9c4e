"""Two hosts on one machine: two network namespaces joined by a pair of virtual Ethernet interfaces, each with
shared memory of its own, and the second with an empty folder in place of one of the first's.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.launching import ROOT

# Mounts and process numbers of its own, as another host has.
APART = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
WAIT = 300  # seconds that a slow machine may take over a run
# In the namespaces of a host: its own /dev/shm, the folder $1 in place of $2; then the command.
BEGIN = """mount -t tmpfs tmpfs /dev/shm
if [ -n "$1" ]; then mount --bind "$1" "$2"; fi
shift 2
exec "$@"
"""


class Link(threading.Thread):
    """The link of two hosts, an Ethernet interface each, whose frames pass through this process.

    It loses, delays and reorders them as netem does where a kernel has it: each frame is lost with the chance
    `loss`, else held back for up to `delay` seconds, so that later ones overtake it. `loss` may be set while
    the link is in use; 1.0 cuts it, and so does `cut`, which names the hosts whose frames are all lost. It
    duplicates and damages nothing, and is as slow as Python.
    """

    def __init__(self, ends: Sequence[str], loss: float, delay: float, seed: int = 7):
        super().__init__(daemon=True)
        self.loss, self.delay, self.random = loss, delay, random.Random(seed)
        self.cut: frozenset[int] = frozenset()
        self.lost = self.overtaken = 0
        self.going = True
        self.taps = [os.open("/dev/net/tun", os.O_RDWR) for _ in ends]
        for tap, name in zip(self.taps, ends):
            TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))

    def run(self) -> None:
        held: list[tuple[float, int, int, bytes]] = []  # when it is due, number, where it goes, frame
        number, last = 0, dict.fromkeys(self.taps, -1)
        while self.going:
            wait = held[0][0] - time.monotonic() if held else 0.1
            for tap in select.select(self.taps, [], [], max(0.0, wait))[0]:
                frame, number = os.read(tap, 65536), number + 1
                if self.random.random() < self.loss or self.taps.index(tap) in self.cut:
                    self.lost += 1
                    continue
                other = self.taps[tap == self.taps[0]]
                due = time.monotonic() + self.random.random() * self.delay
                heapq.heappush(held, (due, number, other, frame))
            while held and held[0][0] <= time.monotonic():
                _, sent, other, frame = heapq.heappop(held)
                self.overtaken += sent < last[other]
                last[other] = max(last[other], sent)
                with contextlib.suppress(OSError):  # its interface is down
                    os.write(other, frame)

    def close(self) -> None:
        self.going = False
        self.join()
        for tap in self.taps:
            os.close(tap)


class Hosts:
    """Hosts 0, 1, .. at addresses 10.113.0.1, 10.113.0.2, ..; `scratch` is a folder that all see.

    mbit   what each sends at most, in 10^6 bits per second; None: as fast as the machine copies
    bad    loss and delay of the link of two hosts, see `Link`; None: a good one
    """

    def __init__(
        self, scratch: Path, count: int = 2, mbit: int | None = None, bad: tuple[float, float] | None = None
    ):
        self.scratch, self.names = scratch, [f"halobench-{os.getpid()}-{host}" for host in range(count)]
        self.commands: list[Command] = []
        self.apart = scratch / "elsewhere"
        self.apart.mkdir()
        for name in self.names:
            ip("netns", "add", name)
        # Names of interfaces are at most 15 characters long.
        ends = [f"hb{os.getpid()}-{host}" for host in range(count)]
        self.link = None
        if bad is not None:
            self.link = Link(ends, *bad)
            self.link.start()
        elif count == 2:
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        else:
            self._switched(ends)
        for host, (name, end) in enumerate(zip(self.names, ends)):
            ip("link", "set", end, "netns", name)
            ip("-n", name, "link", "set", end, "name", "eth0")
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for each in ("lo", "eth0"):
                ip("-n", name, "link", "set", each, "up")
            if mbit is not None:
                # A card cuts what it is handed into frames; here the processor does, wherever the bucket does
                # not hold a packet. So packets have at most 32 KiB, which the bucket holds, and it is small,
                # since what it holds leaves at once.
                ip("-n", name, "link", "set", "eth0", "gso_max_size", "32768")
                shaped = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "40kb", "latency", "400ms"]
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", *shaped], check=True)
                # What a connection has waiting for the link is little, as before a real card: what is sent
                # the other way would be acknowledged only behind it.
                few = "net.ipv4.tcp_limit_output_bytes=32768"
                subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", few], check=True)

    def _switched(self, ends: Sequence[str]) -> None:
        """Interfaces of these names whose other ends a switch joins, in a namespace of its own."""
        switch = f"halobench-{os.getpid()}-switch"
        ip("netns", "add", switch)
        self.names.append(switch)
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for host, end in enumerate(ends):
            ip("link", "add", end, "type", "veth", "peer", "name", f"port{host}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{host}", "master", "br0", "up")

    @staticmethod
    def address(host: int) -> str:
        return f"10.113.0.{host + 1}"

    def start(self, host: int, *words: str, apart: Path | None = None) -> Command:
        """A command on a host. In place of the folder `apart` host 1 has one of its own, `self.apart`."""
        instead = self.apart if apart is not None and host == 1 else ""
        inside = ["ip", "netns", "exec", self.names[host], "unshare", *APART, "sh", "-c", BEGIN, "sh"]
        made = Command(
            [*inside, str(instead), str(apart or ""), *words], self.scratch / f"{len(self.commands)}"
        )
        self.commands.append(made)
        return made

    def train(
        self, *words: str, apart: Path | None = None, count: int = 2, workers: int = 2
    ) -> list[Command]:
        """torchrun on `count` hosts, so many workers each, of `harness.run.worker` and a run, or of
        `tests.host_worker`, which is torchrun itself, and several; gives the commands."""
        itself = words[0] == "tests.host_worker"
        return [
            self.start(
                host,
                sys.executable, "-m", words[0] if itself else "torch.distributed.run",
                "--nnodes", str(count), "--node-rank", str(host), "--nproc-per-node", str(workers),
                "--master-addr", self.address(0), "--master-port", "29513",
                *(words[1:] if itself else ("-m", *words)),
                apart=apart,
            )
            for host in range(count)
        ]  # fmt: skip

    def close(self) -> None:
        for command in self.commands:
            command.kill()
        if self.link is not None:
            self.link.close()
        for name in self.names:
            ip("netns", "delete", name)


class Command:
    """A command that is going on, whose output goes to a file."""

    def __init__(self, words: Sequence[str], out: Path):
        self.out = out
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        with out.open("wb") as file:
            self.process = subprocess.Popen(
                words, env=environment, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self.out.read_text(errors="replace")

    def end(self) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(WAIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.said}") from None

    def kill(self) -> None:
        """The command and all that it started, at once."""
        if self.process.poll() is None:
            own = psutil.Process(self.process.pid)
            for process in (own, *own.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.wait()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def lacking() -> str:
    """Why there can be no such hosts here; "" where there can."""
    if os.geteuid() != 0:
        return "two hosts on one machine need root"
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "two hosts on one machine need ip (apt-get install iproute2) and unshare (util-linux)"
    joined = "mount -t tmpfs tmpfs /mnt && ip link add hb0 type veth peer name hb1"
    made = subprocess.run(["unshare", "--net", *APART, "sh", "-c", joined], capture_output=True, text=True)
    return (made.returncode and f"two hosts on one machine need namespaces: {made.stderr.strip()}") or ""


@pytest.fixture
def hosts(tmp_path):
    """Two hosts for one test, or a skip that says why; a failure where HALOBENCH_MUST_HAVE asks for them."""
    yield from _two(tmp_path, lacking())


@pytest.fixture
def badly_linked(tmp_path):
    """As `hosts`, with a link that loses, delays and reorders."""
    tun = "" if os.path.exists("/dev/net/tun") else "a bad link on one machine needs /dev/net/tun"
    yield from _two(tmp_path, lacking() or tun, bad=(0.01, 0.005))


def _two(scratch: Path, reason: str, bad: tuple[float, float] | None = None) -> Iterator[Hosts]:
    if reason:
        assert "netns" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), reason
        pytest.skip(reason)
    made = Hosts(scratch, bad=bad)
    yield made
    made.close()
