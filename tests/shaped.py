"""`python -m tests.shaped [--mbit N] [--hosts N]`: runs on hosts whose links are really slow, beside what a
replay of the same run on one host, over loopback, says of them.

Hosts are network namespaces, each of which sends through a token bucket (`tests.hosts`). Nothing of the
shaped run is known to the replay but the bandwidth, and, where hosts outnumber this machine's cores, that
they share those.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.base import tables
from harness.comm.recorder import cpu_count
from harness.model.replay.settings import parse
from harness.model.replay.times import times_of
from harness.results.reader import Trace
from tests.hosts import Hosts, lacking
from tests.launching import ROOT

SYSTEMS = ("vanilla", "sancus", "cdfgnn", "pscgcn", "pipegcn", "adaqp")
# A thread each: hosts that are namespaces of one machine would each take all of its cores.
GRAPH = ("dataset=twin/flickr", "dataset.scale=0.1", "model.hidden=128", "evaluate.every=1000", "threads=1")
EPOCHS = 40


class Held(NamedTuple):
    """Seconds of a system's epoch, mean without the first: over loopback, predicted for the slow links from
    there, and measured on them; and MB per epoch of all workers."""

    system: str
    loopback: float
    predicted: float
    measured: float
    megabytes: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def measured(run: Path) -> float:
    """The slowest worker's epoch, as `Times.epoch` is."""
    epochs = Trace(run).epochs
    return float(epochs[epochs.epoch > 0].groupby("epoch").train_s.max().mean())


def prepared(folder: Path, workers: int, *more: str) -> list[Path]:
    """Folders of runs that wait for their workers."""
    words = [f"system={','.join(SYSTEMS)}", *GRAPH, f"workers={workers}", f"epochs={EPOCHS}", "device=cpu"]
    places = [f"results={folder}", f"cache={folder.parent / 'cache'}", "launch=prepare", *more]
    done = subprocess.run(
        [sys.executable, "-m", "harness", "-m", *words, *places], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [Path(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("torchrun ")]


def trained(hosts: Hosts, runs: Sequence[Path], count: int, workers: int) -> None:
    commands = hosts.train("tests.host_worker", *map(str, runs), count=count, workers=workers)
    for command in commands:
        assert command.end() == 0, command.said


def held(scratch: Path, count: int, mbit: int) -> list[Held]:
    """`count` hosts of one worker each, all of which send at most `mbit`."""
    alone = prepared(scratch / "loopback", count, "transport=sockets")
    apart = prepared(scratch / "shaped", count)
    for name, runs, several in (("one", alone, 1), ("many", apart, count)):
        (scratch / name).mkdir()
        hosts = Hosts(scratch / name, max(several, 2), mbit if several > 1 else None)
        try:
            trained(hosts, runs, several, count // several)
        finally:
            hosts.close()
    found = []
    for system, here, there in zip(SYSTEMS, alone, apart):
        link = f"cluster.between.gbytes_per_s={mbit / 8000}"
        # Wall seconds say more of a worker than its CPU seconds, as long as it has a core.
        shared = [f"cores={cpu_count()}"] if count > cpu_count() else []
        _, replayer, _ = parse([str(here), "cluster=hosts/10g", "per_host=1", *shared, link])
        sent = Trace(here).comm
        found.append(
            Held(
                system,
                measured(here),
                times_of(replayer.replay(Trace(here))).epoch,
                measured(there),
                sent[sent.epoch > 0].bytes.sum() / (EPOCHS - 1) / 1e6,
            )
        )
    return found


def table(found: Sequence[Held]) -> str:
    rows = [
        [each.system, *(f"{1e3 * s:.0f}" for s in each[1:4]), f"{each.ratio:.2f}", f"{each.megabytes:.2f}"]
        for each in found
    ]
    heads = ["system", "loopback, ms", "predicted, ms", "measured, ms", "ratio", "MB per epoch"]
    return tables.text(heads, rows, heads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--mbit", type=int, default=100)
    asked = parser.parse_args()
    if reason := lacking():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as scratch:
        print(f"{asked.hosts} hosts of one worker, {asked.mbit} Mbit/s each")
        print(table(held(Path(scratch), asked.hosts, asked.mbit)))


if __name__ == "__main__":
    main()
