"""`python -m tests.predicted [--rounds N]`: every system's epoch on this machine, beside what a replay by
roofline says of it with nothing but the profile that `halobench cluster measure` writes before each round.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.base import tables
from harness.model.replay.engine import Timeline
from harness.model.replay.settings import parse
from harness.model.replay.times import times_of
from harness.results.reader import Trace
from harness.run import runner
from harness.run.runner import Places
from tests.shaped import measured

GRAPH = ["dataset=twin/reddit", "dataset.scale=0.1", "model.hidden=128", "workers=2", "device=cpu"]
EPOCHS = 12
NAMES = ("measured", "predicted", "counted")


class Held(NamedTuple):
    """Seconds of a system's epoch, mean without the first: measured, and predicted; and CPU seconds of what
    is counted, predicted over traced."""

    system: str
    measured: float
    predicted: float
    counted: float

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def held(folder: Path, cluster: Path, systems: Sequence[str]) -> list[Held]:
    places = Places(folder / "results", folder / "cache", folder)
    sweep = " ".join([f"system={','.join(systems)}", *GRAPH, f"epochs={EPOCHS}", f"evaluate.every={EPOCHS}"])
    runs = runner.composed(runner.expand(sweep), places)
    runner.start(sweep, places, runs)
    found = []
    for system, run in zip(systems, runs):
        trace = Trace(run.directory)
        _, replayer, _ = parse([str(run.directory), f"cluster={cluster}", "compute=roofline"])
        timeline = replayer.replay(trace)
        (lasts,) = replayer.rooflines.values()
        found.append(Held(system, *_epochs(trace, timeline), lasts.modelled / lasts.traced))
    return found


def _epochs(trace: Trace, timeline: Timeline) -> tuple[float, float]:
    """Seconds of an epoch, measured and predicted. An asynchronous run has no epoch that all workers make:
    there it is the rounds that the slowest makes per epoch.
    """
    times = times_of(timeline)
    if timeline.program.updates is not None:
        return trace.summary["epoch_s"], max(own.epoch for own in times.workers)
    return measured(trace.run_dir), times.epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="the table has the medians over them")
    rounds: list[list[Held]] = []
    for number in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Path(folder) / "measured.yaml"
            # In a process of its own, as a user measures: loops and threads are set up anew.
            words = [sys.executable, "-m", "harness", "cluster", "measure", "--out", str(cluster)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            rounds.append(held(Path(folder), cluster, list(runner.configured())))
        said = " ".join(f"{each.system} {each.ratio:.2f}" for each in rounds[-1])
        print(f"round {number + 1}: {said}", file=sys.stderr)
    rows = []
    for of in zip(*rounds):
        at = [statistics.median(getattr(each, name) for each in of) for name in NAMES]
        ratios = [each.ratio for each in of]
        rows.append(
            [of[0].system, f"{1e3 * at[0]:.0f}", f"{1e3 * at[1]:.0f}", f"{statistics.median(ratios):.2f}",
             f"{min(ratios):.2f} to {max(ratios):.2f}", f"{at[2]:.2f}"]
        )  # fmt: skip
    heads = ["system", "measured, ms", "predicted, ms", "ratio", "rounds", "counted work"]
    print(tables.text(heads, rows, heads))


if __name__ == "__main__":
    main()
