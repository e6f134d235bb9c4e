"""How long runs will take here, from finished runs of the same system, graph and number of workers."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base.terminal import counted
from harness.results import files
from harness.run import runner
from harness.run.config import Run


def seconds(run: Run) -> float | None:
    """Of a whole run, from the latest like it among the results: its start and evaluations as they were,
    its epochs as many as are asked for. None where none has finished. What it took is between the times of
    its first file and its last, which a copy of the folder may not keep."""
    alike = run.directory.parent.glob(f"{run.directory.name.rpartition('-seed')[0]}-seed*/summary.json")
    ended = max(((path.stat().st_mtime, path) for path in alike), default=None)
    if ended is None:
        return None
    summary = files.read_json(ended[1])
    trained = float(summary["train_total_s"])
    whole = ended[0] - ended[1].with_name("config.yaml").stat().st_mtime
    return max(whole - trained, 0.0) + trained * run.settings.epochs / summary["epochs"]


def said(runs: Sequence[Run]) -> str:
    """How many runs there are, how many of them have finished, and about how long the others will take."""
    lacking = runner.lacking(runs)
    done = len(runs) - len(lacking)
    has = counted(len(runs), "run") + f", {done} of them finished before" * bool(done)
    known = [each for each in map(seconds, lacking) if each is not None]
    if not lacking:
        return has
    if not known:
        return f"{has}; how long they take is known when one of their system, graph and workers has finished"
    time = f"{sum(known):.0f} seconds" if sum(known) < 100 else f"{sum(known) / 60:.0f} minutes"
    more = f" and what {len(lacking) - len(known)} take of which none like them has finished,"
    told = f"{has}; {'the others' if done else 'they'} take about {time}"
    told += more * (len(known) < len(lacking))
    return f"{told} by the latest finished runs of the same system, graph and workers"
