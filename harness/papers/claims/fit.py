"""Clusters fitted to a row that a paper prints, from the runs of an experiment.

A paper's baseline row says what its testbed did: how long an epoch computed and how long it communicated.
From it two numbers of the cluster follow on each graph, such that the replay of that row on the cluster has
these seconds: the efficiency of all work, and the rate of a kind of link. Every other row is then a
prediction. The experiment's file names the rows under `fits`, each with

    entry     the published entry that prints the row
    row       the row whose runs are replayed; graph: on which of the experiment's graphs
    cluster   the preset that is fitted, and in whose file the fit is kept
    printed   places of the printed seconds: `epoch`, and `waiting` for messages (an epoch's share of both is
              what they are `over`); without `waiting` links stay as the cluster has them. Or `computing` and
              `waiting` where only their ratio is known: then efficiency is 1
    over      number of epochs that the printed seconds are of
    link      "inside" or "between": the links that are fitted
    words     of the replay
    whole     as of a measure
    each      what {NAME} stands for in all of these, as of a claim; a cell that prints no seconds is given
              what the cell before it was fitted to
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from harness.base.bounds import number
from harness.base.errors import InputError, choice, typed, writing
from harness.base.subcommand import Parser, command
from harness.model.replay.settings import PRESETS
from harness.papers.claims import cells, experiment, published
from harness.papers.claims.experiment import Experiment
from harness.papers.claims.measure import STEPS, replayed
from harness.results import files
from harness.results.report.groups import Run
from harness.run import runner
from harness.run.runner import Places

KINDS = ("inside", "between")
CLOSE = 1e-3  # largest relative error of both seconds
ROUNDS = 40
FASTEST = 1000.0  # GB/s: the fastest rate that is tried, at which a link costs next to nothing


@dataclass(frozen=True)
class Row:
    """A printed row, as the module says."""

    entry: str
    row: str
    graph: str
    cluster: str
    printed: dict[str, str]
    words: str
    over: float = number(1, above=True)
    link: str | None = None
    whole: Any = True
    each: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choice("entry", self.entry, published.entries())
        choice("link", self.link, (*KINDS, None))
        choice("whole", self.whole, (True, False, STEPS))
        for key in self.printed:
            choice("printed", key, ("epoch", "computing", "waiting"))
        if set(self.printed) not in ({"epoch"}, {"epoch", "waiting"}, {"computing", "waiting"}):
            raise InputError(
                f"printed={sorted(self.printed)}: give epoch, epoch and waiting, or computing and waiting"
            )
        if ("waiting" in self.printed) != (self.link is not None):
            raise InputError(f"link={self.link}: give it with printed.waiting, which it is fitted to, alone")


@dataclass(frozen=True)
class Target:
    """Seconds per epoch that the replay of a row is to have.

    waiting    None: none are printed
    relative   whether only the ratio of both is printed
    """

    computing: float
    waiting: float | None
    relative: bool = False


@command("halobench cluster fit")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("name", metavar="EXPERIMENT", help="whose runs, which are there, and whose `fits`")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="where the runs are")
    parser.add_argument("--size", choices=experiment.SIZES, default="small")
    asked = parser.parse_args(words)
    places = Places(asked.results, asked.results / "cache", Path("data"))
    fits = fitted(experiment.one(asked.name), asked.size, places)
    for name, made in fits.items():
        write(name, made, f"halobench cluster fit {asked.name} --size {asked.size}")
        print(f"conf/cluster/{name}.yaml: {', '.join(each['graph'] for each in made)}")


def fitted(plan: Experiment, size: str, places: Places) -> dict[str, list[dict[str, Any]]]:
    """By cluster the fits of an experiment's rows, as a preset's file has them. InputError where runs are
    missing."""
    choice("size", size, plan.sizes)
    if not plan.fits:
        raise InputError(f"{plan.name} names no rows to fit clusters to: give fits in its file")
    found: dict[str, list[dict[str, Any]]] = {}
    for i, given in enumerate(plan.fits):
        where = f"fits[{i}]"
        row = typed(Row, given, where)
        entry = published.entry(row.entry)
        before: dict[str, Any] | None = None
        for ours, theirs in cells.each_of(row.each, where) if row.each else [({}, {})]:
            named = {
                key: cells.named(str(getattr(row, key)), ours, where)
                for key in ("row", "graph", "cluster", "words")
            }
            sources = {key: cells.named(place, theirs, where) for key, place in row.printed.items()}
            target = _target(entry, sources, row.over, where)
            if target is not None:
                runs = _runs(plan, named["row"], size, named["graph"], places)
                before = _fit(row, named, target, runs)
                before["source"] = f"{row.entry} {next(iter(sources.values())).rpartition('/')[0]}"
            elif before is None or before["graph"] != named["graph"]:
                continue
            found.setdefault(named["cluster"], []).append(dict(before))
    return found


def _target(entry: published.Entry, sources: Mapping[str, str], over: float, where: str) -> Target | None:
    """The printed seconds per epoch of a row; None where one of its numbers is missing. InputError where they
    leave no time to compute."""
    seconds = {key: cells.number_at(entry, place, where) for key, place in sources.items()}
    known = {key: value / over for key, value in seconds.items() if value is not None}
    if known.keys() != seconds.keys():
        return None
    waiting = known.get("waiting")
    computing = known["epoch"] - (waiting or 0.0) if "epoch" in known else known["computing"]
    if not computing > 0:
        raise InputError(f"{where}.printed: {entry.id} leaves {computing:g} s to compute: give other places")
    return Target(computing, waiting, relative="computing" in known)


def _runs(plan: Experiment, row: str, size: str, graph: str, places: Places) -> list[Run]:
    choice("row", row, plan.rows)
    if len(sweeps := plan.sweeps(row, size, graph)) != 1:
        graphs = ", ".join(plan.sizes[size].graphs)
        raise InputError(f"size {size} of {plan.name} has {graph} not once among {graphs}: give another size")
    folders = runner.folders(sweeps[0], places)
    if not all((folder / "summary.json").exists() for folder in folders):
        raise InputError(
            f"{row} has not been run on {graph}: run halobench figures {plan.name} --size {size} first"
        )
    return [Run(folder) for folder in folders]


def _fit(row: Row, named: Mapping[str, str], target: Target, runs: Sequence[Run]) -> dict[str, Any]:
    """The fit to a row: efficiency and rate are found by repeated scaling. Each is multiplied by the factor
    by which its own seconds are off, since computing goes with 1 over the efficiency, and waiting nearly with
    1 over the rate. What is still off in the end is printed: where workers wait longer for each other than is
    printed, no rate will do."""
    fit: dict[str, Any] = {"graph": named["graph"], "source": "", "efficiency": 1.0}
    key = f"{row.link}_gbytes_per_s"
    if row.link is not None:
        fit[key] = 1.0
    for _ in range(ROUNDS):
        tried = json.dumps([fit], separators=(",", ":"))
        words = f"{named['words']} fit=printed cluster={named['cluster']} cluster.fits={tried}"
        epoch, waiting = (
            float(np.mean([replayed(run, what, words, row.whole) for run in runs]))
            for what in ("epoch", "exposed")
        )
        if row.link is not None and 0 in (waiting, target.waiting):
            raise InputError(
                f"{named['row']} waits {waiting:g} s for messages on {named['graph']}, and"
                f" {target.waiting:g} s in print: no rate of link={row.link} fits that, leave link and"
                " printed.waiting out"
            )
        off = {"efficiency": 1.0, key: 1.0}
        if target.waiting is None:
            off["efficiency"] = (epoch - waiting) / max(target.computing - waiting, 1e-12)
        elif target.relative:
            off[key] = (waiting / (epoch - waiting)) / (target.waiting / target.computing)
        else:
            off["efficiency"] = (epoch - waiting) / target.computing
            off[key] = waiting / target.waiting
        if all(abs(math.log(each)) <= CLOSE for each in off.values()):
            break
        for name in fit.keys() & off.keys():
            fit[name] = fit[name] * off[name]
        if row.link is not None:
            fit[key] = min(fit[key], FASTEST)
    else:
        said = ", ".join(f"{name} {each:.3g}" for name, each in off.items())
        print(f"{named['cluster']}, {named['graph']}: not fitted; seconds over the printed ones: {said}")
        fit["missed_by"] = max(off.values(), key=lambda factor: abs(math.log(factor)))
    return {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in fit.items()}


def write(name: str, made: Sequence[Mapping[str, Any]], command: str) -> Path:
    """Write fits into a preset's file. They replace its fits to the same graphs; its other fits stay.

    command   that made them, which the file names
    """
    path = PRESETS / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"cluster={name} is no preset: fits are kept in conf/cluster")
    before = yaml.safe_load(path.read_text()).get("fits") or []
    new = {each["graph"] for each in made}
    fits = [*(each for each in before if each["graph"] not in new), *made]
    said = [", ".join(f"{key}: {json.dumps(value)}" for key, value in each.items()) for each in fits]
    lines = [f"  - {{{each}}}" for each in said]
    # The block from "fits:" to the next key at the start of a line, if there is one, gives way.
    rest = re.sub(r"^fits:.*\n?(?:(?:[ #].*)?(?:\n|\Z))*", "", path.read_text(), flags=re.M).rstrip()
    with writing(path, "give a checkout that can be written"):
        files.write_text_atomic(path, "\n".join([rest, f"fits:  # {command}", *lines]) + "\n")
    return path
