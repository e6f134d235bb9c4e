"""halobench plan system=NAME dataset=NAME workers=N cluster=NAME ...: what runs would take, before they run.

The first line says whether it fits. Bytes are exact where they follow from the partition, a range where
training decides, measured where `probe` asks for it; seconds are modelled. docs/howto/plan.md derives each.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table

from harness.base import tables
from harness.base.errors import InputError, check_place
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.terminal import Terminal, counted, unfolded
from harness.base.words import key_of
from harness.core.cluster import Cluster
from harness.model.plan.grids import communication, grids
from harness.model.plan.plan import Plan, plan
from harness.model.plan.trial import Probe, probe
from harness.model.plan.words import parse
from harness.model.replay.__main__ import write_csv
from harness.run import runner
from harness.run.config import Run
from harness.run.prepare import shards_of

DESCRIPTION = """\
What runs would take on a cluster, before anybody waits for them: memory of a worker, bytes and seconds of an
epoch.

words:
  system=NAME dataset=NAME workers=N and any key of halobench run; several values plan several runs
  cluster=NAME           a preset (conf/cluster) or a file that ends in .yaml
  cluster.KEY=VALUE      a value of it, as cluster.between.gbytes_per_s=0.125
  per_host=N             workers on each host (default: one on each device, in their order)
  sample=SCALE           extrapolate from the same twin at this smaller scale, and at half of it
  probe=EPOCHS           train so many epochs here too, and say what bytes and memory these took
"""


@command("halobench plan")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=DESCRIPTION, formatter_class=AS_WRITTEN)
    parser.add_argument("words", nargs="+", metavar="KEY=VALUE")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the table in full precision")
    parser.add_argument(
        "--grids", action="store_true", help="add what CAGNET 2D, 3D and Plexus send by published formulas"
    )
    parser.add_argument(
        "--dry",
        action="store_true",
        help="as `halobench run --dry`: on this machine where no cluster is given, seeds alike, what all runs"
        " send and how long they take",
    )
    options = parser.parse_intermixed_args(words)
    if options.csv is not None:
        check_place("csv", options.csv)
    # The words, checked before anything is planned.
    given, console, plans, rows = parse(options.words, options.dry), unfolded(), [], []
    if options.grids and given.how.sample is not None:
        raise InputError(
            f"--grids needs the graph itself, and sample={given.how.sample:g} is given: leave one out"
        )
    runs, notes = given.runs, dict[str, None]()
    sent, unknown = pd.Series({"least": 0.0, "most": 0.0}), 0
    times = Counter(_but_seed(asked) for asked, _ in runs)
    if options.dry:  # runs that differ in their seed alone are planned once
        runs = list({_but_seed(asked): (asked, run) for asked, run in reversed(runs)}.values())[::-1]
    telling = _telling([asked for asked, _ in runs])
    # Plan each run, probe it where that is asked for, and collect its rows for the table.
    for asked, run in runs:
        made = plan(run, given.cluster, given.how.sample, given.how.per_host)
        made.cluster = replace(made.cluster, name=given.cluster_name)
        made.notes += given.assumed
        notes |= dict.fromkeys(made.notes)
        found = probe(asked, given) if given.how.probe else None
        if made.lacking:
            unknown += times[_but_seed(asked)]
        else:
            whole = made.bytes_first() + (run.settings.epochs - 1) * made.bytes_epoch()
            sent = sent + times[_but_seed(asked)] * whole.round()
        if not options.dry or len(runs) == 1:
            show(console, made, found, _told_apart(asked, telling))
        plans.append((asked, made))
        rows += table_rows(made, found, asked)
    # All runs together: side by side, what they send in sum, and the grids that no system here is.
    if len(runs) > 1:
        console.print(_beside(plans))
        for note in notes if options.dry else ():
            console.say(f"note: {note}")
    if options.dry:
        more = f", and what {unknown} of them do, which only training tells" * bool(unknown)
        console.say(f"all runs together send {_range(sent, 1e6)} MB{more}")
        console.say(runner.how_long([run for _, run in given.runs]))
    if options.grids:
        cluster = replace(given.cluster, name=given.cluster_name)
        formulas = grid_rows([run for _, run in given.runs], cluster, given.how.per_host)
        console.print(_formulas(formulas))
        rows += formulas
    if options.csv is not None:
        write_csv(options.csv, rows)


def _but_seed(asked: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in asked if key_of(word) != "seed")


def first_line(made: Plan, found: Probe | None = None) -> str:
    """Whether the run fits its devices, in a sentence."""
    if made.lacking and found is None:
        return "whether it fits is not planned: only training tells; give probe=10"
    needs = made.total
    if made.lacking and found is not None and made.sample is not None:
        measured = f"the probe's largest worker took {_gb(found.memory)} at sample={made.sample:g}"
        return f"{measured}, from which it is not known whether the run fits"
    if made.lacking and found is not None:
        needs = np.full(len(needs), found.memory)
    if not made.has:
        says = f"cluster={made.cluster.name} does not say what its devices have"
        return f"the largest worker needs {_gb(needs.max())}; {says}"
    tightest = int((needs / np.array(made.has)).argmax())
    verdict = "fits" if needs[tightest] <= made.has[tightest] else "does not fit"
    return (
        f"{verdict}: worker {tightest} needs {_gb(needs[tightest])} of the {_gb(made.has[tightest])} that its"
        " device has, the largest share of all"
    )


def show(console: Terminal, made: Plan, found: Probe | None, apart: str = "") -> None:
    """Print one run's plan: whether it fits, memory, bytes, seconds, the probe's result and the notes.

    apart   the words that tell it from others that are planned
    """
    run = made.run
    console.say(first_line(made, found))
    workers = counted(run.settings.workers, "worker")
    console.say(f"{run.system_name}, {run.graph_name}, {workers}{apart} on cluster={made.cluster.name}")
    if not made.lacking:
        largest = int(made.total.argmax())
        parts = {**{name: each[largest] for name, each in made.memory.items()}, "sum": made.needs}
        rows = [(name, f"{size / 1e9:.3f}") for name, size in parts.items()]
        console.print(tables.shown(["memory of the largest worker", "GB"], rows))
        purposes = made.bytes_by_purpose()
        purposes.loc["sum"], purposes.loc["first epoch"] = made.bytes_epoch(), made.bytes_first()
        rows = [(str(name), _range(both, 1e6)) for name, both in purposes.iterrows()]
        console.print(tables.shown(["purpose", "MB per epoch"], rows))
        if made.sample is not None:
            console.say("bytes and seconds between the two growths that the note below has")
        elif not made.exact:
            console.say("bytes between what is sent for certain and the most: the rest depends on training")
        epoch = f"modelled epoch {_range(seconds(made), 1e-3)} ms"
        computing = [max(own.compute for own in times.workers) for times in made.seconds]
        console.say(f"{epoch}, of which {_range((min(computing), max(computing)), 1e-3)} ms compute")
    elif found is None:
        console.say(made.lacking)
    if found is not None:
        console.say(found.said)
    for note in made.notes:
        console.say(f"note: {note}")


def seconds(made: Plan) -> tuple[float, ...]:
    """Modelled seconds of the slowest worker's epoch, at the least and at the most bytes; empty where only a
    run can tell."""
    each = [times.epoch for times in made.seconds]
    return (min(each), max(each)) if each else ()


def table_rows(made: Plan, found: Probe | None, words: Sequence[str]) -> list[dict[str, Any]]:
    """A row per purpose, with its bytes beside the run's memory and seconds. One row for a run that sends
    nothing, and for one that only a probe tells of.

    words   of which the run was made, one value each
    """
    run, low_high = made.run, seconds(made) or (None, None)
    key = {
        "system": run.system_name,
        "dataset": run.graph_name,
        "workers": run.settings.workers,
        "cluster": made.cluster.name,
        "asked": " ".join(words),
        "fits": None if made.lacking else made.fits,
        "memory_bytes": None if made.lacking else made.needs,
        "memory_has_bytes": min(made.has, default=None),
        "exact": None if made.lacking else made.exact,
        "modelled_epoch_s": low_high[0],
        "modelled_epoch_s_most": low_high[1],
        "first_epoch_bytes_least": None if made.lacking else made.bytes_first()["least"],
        "first_epoch_bytes_most": None if made.lacking else made.bytes_first()["most"],
        "probed_epochs": found.epochs if found is not None else None,
        "probed_bytes": found.bytes if found is not None else None,
        "probed_memory_bytes": found.memory if found is not None else None,
    }
    purposes: list[Any] = [("", None, None)]
    if not made.lacking:
        purposes = [*made.bytes_by_purpose().itertuples()] or [("", 0.0, 0.0)]
    return [{**key, "purpose": name, "bytes_least": low, "bytes_most": high} for name, low, high in purposes]


def _telling(asked: Sequence[Sequence[str]]) -> set[str]:
    """The keys whose values differ between runs, beside system, graph and number of workers."""
    values: dict[str, set[str]] = {}
    for word in (word for words in asked for word in words):
        values.setdefault(key_of(word), set()).add(word)
    return {key for key, found in values.items() if len(found) > 1} - {"system", "dataset", "workers", "gpus"}


def _told_apart(asked: Sequence[str], telling: set[str]) -> str:
    """The words of a run with one of the `telling` keys, each after a space."""
    return "".join(f" {word}" for word in asked if key_of(word) in telling)


def _beside(plans: Sequence[tuple[Sequence[str], Plan]]) -> Table:
    """All runs, with the words of each, in the order of their modelled epochs; those without one last."""
    telling = _telling([asked for asked, _ in plans])
    shown = tables.shown(["run", "fits", "GB per worker", "MB per epoch", "modelled epoch, ms"])
    for asked, made in sorted(plans, key=lambda each: min(seconds(each[1]), default=float("inf"))):
        run = made.run
        called = f"{run.system_name}, {run.graph_name}, {counted(run.settings.workers, 'worker')}"
        called += _told_apart(asked, telling)
        if made.lacking:
            shown.add_row(called, *"????")
            continue
        fits = {True: "yes", False: "no", None: "?"}[made.fits]
        sent, lasts = _range(made.bytes_epoch(), 1e6), _range(seconds(made), 1e-3)
        shown.add_row(called, fits, f"{made.needs / 1e9:.3f}", sent, lasts)
    return shown


def grid_rows(runs: Sequence[Run], cluster: Cluster, per_host: int | None) -> list[dict[str, Any]]:
    """A row per grid for each combination of graph, number of workers and widths among the runs."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        stats = json.loads((shards_of(run)[0] / "stats.json").read_text())
        workers = run.settings.workers
        widths = [stats["features"], *[run.model.hidden] * (run.model.layers - 1), stats["classes"]]
        for grid in grids(stats["vertices"], stats["edges"], widths, workers):
            sent = grid.bytes
            found[grid.name, run.graph_name, workers, *widths] = {
                "system": grid.name,
                "dataset": run.graph_name,
                "workers": workers,
                "cluster": cluster.name,
                "memory_bytes": grid.memory,
                "bytes_least": sent,
                "bytes_most": sent,
                "communication_s": None if sent is None else communication(sent, cluster, workers, per_host),
                "note": grid.note,
            }
    return list(found.values())


def _formulas(rows: list[dict[str, Any]]) -> Table:
    """Grids by their published formulas; their seconds are communication alone."""
    shown = tables.shown(["no system here", "GB per worker", "MB per epoch", "communication, ms", "note"])
    for row in rows:
        numbers = row["memory_bytes"], row["bytes_least"], row["communication_s"]
        shown.add_row(
            f"{row['system']}, {row['dataset']}, {counted(row['workers'], 'worker')}",
            *("" if each is None else f"{each / unit:.3f}" for each, unit in zip(numbers, (1e9, 1e6, 1e-3))),
            row["note"],
        )
    return shown


def _range(both: Iterable[float], unit: float) -> str:
    low, high = (f"{each / unit:.3f}" for each in both)
    return low if low == high else f"{low} to {high}"


def _gb(size: float) -> str:
    return f"{size / 1e9:.3f} GB"
