"""`python -m tests.advised --cluster FILE --cache FOLDER [--seed N]`: what `halobench advise`
names, beside what is measured, on pairs of a real graph and a network that are drawn.

A network is `local`, two workers on this machine, or two hosts of one worker that are network namespaces and
send at most 100 or 1000 Mbit/s (`tests.hosts`). The winner is the system with the least measured time to 99 %
of exact training's best validation score, what is fetched once counted. Advice is given a cluster that
`halobench cluster measure` describes and the bandwidth; it sees none of the measured runs.
"""

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from harness.base import tables
from harness.model.plan import advise
from harness.results.reader import Trace
from harness.results.summary import leading_score
from harness.run import runner
from tests.hosts import Hosts, lacking
from tests.launching import ROOT

LABELS = " dataset.split=low_label"
GRAPHS = ("cora", "citeseer", "dblp" + LABELS, "amazon-photo" + LABELS, "amazon-computers" + LABELS,
          "tolokers", "coauthor-cs", "coauthor-physics")  # fmt: skip
NETWORKS = {"local": None, "100 Mbit/s": 100, "1 Gbit/s": 1000}
COMMON = ("workers=2", "device=cpu", "evaluate.every=1", f"epochs={advise.EPOCHS}")
WITHIN = 1.1  # of the least measured time: advice that names such a system is right
# Trained last, since on large graphs, and over slow networks, they take longest.
BATCHES = ("pscgcn", "gas", "graphsaint", "distdgl", "bytegnn")


class Measured(NamedTuple):
    """A system's best validation score, and seconds until each evaluation's, what is fetched once counted."""

    best: float
    scores: list[float]
    seconds: list[float]

    def reaches(self, goal: float) -> float:
        """Seconds until the score; infinite where it is not reached."""
        there = (s for s, score in zip(self.seconds, self.scores) if score >= goal)
        return next(there, float("inf"))


def drawn(count: int, seed: int) -> list[tuple[str, str]]:
    return random.Random(seed).sample(list(itertools.product(GRAPHS, NETWORKS)), count)


def systems() -> list[str]:
    """All but the control, in the order in which they are trained: exact training first, since the others are
    held to its score."""
    names = [name for name in runner.configured() if name not in ("zero_halo", "vanilla", *BATCHES)]
    return ["vanilla", *names, *BATCHES]


def read(folder: Path) -> Measured:
    trace = Trace(folder)
    epochs = trace.epochs
    seconds = epochs.groupby("epoch").train_s.max().cumsum()
    scores = epochs.drop_duplicates("epoch").set_index("epoch")[f"val_{leading_score(trace)}"]
    return Measured(float(scores.max()), scores.tolist(), seconds.tolist())


def measured(
    graph: str, mbit: int | None, scratch: Path, places: Sequence[str], limit: float
) -> dict[str, Measured]:
    """Every system on a graph and a network; those whose runs failed, or had not ended after `limit` seconds
    of all, are left out."""
    words = [f"system={','.join(systems())}", f"dataset={graph}", *COMMON, *places]
    words = " ".join([*words, f"results={scratch / 'measured'}"]).split()
    if mbit is not None:
        words.append("threads=1")  # hosts that are namespaces of one machine would each take all of its cores
    folders = [run.directory for run in runner.composed(runner.expand(words))]
    if mbit is None:
        _run(["-m", "harness", "-m", *words], limit)
    else:
        _run(["-m", "harness", "-m", *words, "launch=prepare"], limit)
        hosts = Hosts(scratch, 2, mbit)
        deadline = time.monotonic() + limit
        try:
            for command in hosts.train("tests.host_worker", *map(str, folders), count=2, workers=1):
                try:
                    command.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    command.kill()
            print(
                "".join(line for line in command.said.splitlines(True) if ": error" in line or "give" in line)
            )
        finally:
            hosts.close()
    found = {name: read(folder) for name, folder in zip(systems(), folders) if runner.finished([folder])}
    if missing := [name for name in systems() if name not in found]:
        print(f"not measured: {', '.join(missing)}", flush=True)
    return found


def reached(runs: dict[str, Measured]) -> dict[str, float]:
    """Seconds until each has SHARE of exact training's best validation score; infinite where it never has."""
    goal = advise.SHARE * runs["vanilla"].best
    return {name: run.reaches(goal) for name, run in runs.items()}


def _run(words: Sequence[str], limit: float) -> None:
    with tempfile.TemporaryFile("w+") as said:
        going = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        try:
            code = going.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(going.pid, signal.SIGKILL)  # its workers too
            going.wait()
            return
        said.seek(0)
        if code:
            print(_reason(said.read()))


def _reason(said: str) -> str:
    """The line of a failed command's output that says why."""
    lines = [line.strip() for line in said.splitlines() if "error" in line.lower()]
    return lines[0] if lines else said


def advised(graph: str, mbit: int | None, cluster: Path, scratch: Path, places: Sequence[str]) -> str:
    """The system that advice names."""
    words = [f"dataset={graph}", *COMMON, *places, f"cluster={cluster}", f"results={scratch / 'advised'}"]
    words = [word for word in " ".join(words).split() if not word.startswith("evaluate")]
    if mbit is not None:
        words += [f"cluster.between.gbytes_per_s={mbit / 8000}"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", "advise", *words], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(_reason(done.stderr))
    print(done.stdout, flush=True)
    return next(line for line in done.stdout.splitlines() if line.startswith("take ")).split()[1].rstrip(":")


def apart(cluster: Path, made: Path) -> Path:
    """The same devices, one per host."""
    given = yaml.safe_load(cluster.read_text())
    for host, device in enumerate(given["devices"]):
        device["host"] = host
    made.write_text(yaml.safe_dump(given))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", type=int, nargs="+", help="places of the pairs that are tried, from 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds that all measured runs of a pair may take"
    )
    parser.add_argument("--cluster", type=Path, required=True, help="what halobench cluster measure wrote")
    parser.add_argument("--data-dir", default="../shared/data")
    parser.add_argument("--cache", type=Path, required=True)
    asked = parser.parse_args()
    if reason := lacking():
        sys.exit(reason)
    places = [f"data_dir={Path(asked.data_dir).resolve()}", f"cache={asked.cache.resolve()}"]
    print(f"seed {asked.seed}")
    rows, right = [], 0
    pairs = drawn(asked.pairs, asked.seed)
    for graph, network in [pairs[place] for place in asked.only or range(len(pairs))]:
        print(f"{graph}, {network}", flush=True)
        with tempfile.TemporaryDirectory() as scratch:
            mbit = NETWORKS[network]
            cluster = asked.cluster.resolve()
            if mbit is not None:
                cluster = apart(cluster, Path(scratch) / "apart.yaml")
            took = advised(graph, mbit, cluster, Path(scratch), places)
            found = measured(graph, mbit, Path(scratch), places, asked.limit)
        if "vanilla" not in found:
            print(f"exact training had not ended after {asked.limit:g} s: give a larger --limit")
            continue
        seconds = reached(found)
        order = sorted(seconds, key=seconds.__getitem__)
        print(", ".join(f"{name} {seconds[name]:.3f}" for name in order), flush=True)
        ratio = seconds.get(took, float("inf")) / seconds[order[0]]
        right += ratio <= WITHIN
        rows.append([graph, network, took, order[0], f"{seconds[order[0]]:.3g}", f"{ratio:.2f}"])
        print("  ".join(rows[-1]), flush=True)
    heads = ["graph", "network", "advised", "measured winner", "its s", "advised over it"]
    print(tables.text(heads, rows, heads))
    print(f"{right} of {len(rows)} within {100 * (WITHIN - 1):.0f} % of the winner")


if __name__ == "__main__":
    main()
