"""`halobench study`: Every system on real graphs, beside exact training and the control, as one page.

There are three kinds of rows: all systems at one setting; each system at its paper's own setting, beside
exact training and the control at the same setting; and each system with every exact saving that it can take,
with weights as they are and coded. Runs that are lacking are started, one sweep per graph and row; runs that
are there are reused.

`study.csv`, beside the page, holds the report's tables whole: a part for each graph, kind of rows and
partition. It is written as soon as a kind is through, and parts that were not asked for stay as they are. A
table of only some of the rows is a part of its own. The page is made of that file: one table for each graph
and kind, with the columns that compare systems.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from harness.base.disk import replacing
from harness.base.errors import InputError, check_place, choice, writing
from harness.base.subcommand import Parser, command
from harness.base.terminal import Terminal, counted
from harness.base.words import key_of, key_values
from harness.papers.claims import experiment
from harness.papers.claims.claim import Size
from harness.papers.claims.experiment import Experiment
from harness.papers.study.parts import PAGE, TABLE, USUAL, ordered, read_table, shown, tables_of, with_part
from harness.run import runner
from harness.run.process import until_stopped
from harness.run.runner import Places

ONE, PAPERS, BEST = "one setting", "papers' settings", "at its best"


@dataclass(frozen=True)
class Extent:
    """How much of a kind of rows is run on a graph: seeds, epochs and partitions, as on the command line."""

    seeds: str = "1,2,3"
    epochs: int = 200
    partitions: str = USUAL


@dataclass(frozen=True)
class Study:
    """A graph, as overrides, and how much of each kind of rows is run on it.

    instead   words of a row, and what the graph's runs have in their place
    """

    graph: str
    one: Extent = Extent()
    papers: Extent = Extent()
    best: Extent = Extent(epochs=100)
    instead: dict[str, str] = field(default_factory=dict)

    def extent(self, kind: str) -> Extent:
        """How much of a kind of rows is run on the graph."""
        return {ONE: self.one, PAPERS: self.papers, BEST: self.best}[kind]


# Where 32 training vertices are few: physics would take 162 steps per epoch, each with 2 MB of weights'
# gradients per worker.
LARGER = {"system.batch=32": "system.batch=1000"}
TEN = Extent(seeds=",".join(map(str, range(1, 11))))
GRAPHS = {
    "cora": Study("cora"),
    "amazon-photo": Study("amazon-photo dataset.split=low_label"),
    "amazon-computers": Study("amazon-computers dataset.split=low_label", TEN, TEN),
    "dblp": Study("dblp dataset.split=low_label"),
    "tolokers": Study("tolokers", instead=LARGER),
    # 8415 features per vertex: an epoch that fetches them anew moves 3 GB.
    "coauthor-physics": Study(
        "coauthor-physics",
        Extent(epochs=50),
        Extent(seeds="1", epochs=20, partitions="metis"),
        Extent(epochs=50),
        instead=LARGER,
    ),
    "debian": Study("debian", Extent(epochs=100), Extent(epochs=100), instead=LARGER),
}
# At the one setting, raw features are fetched once, and model and optimiser are those of conf/. At the
# papers' settings, exact training and the control are there at each of them; those of CDFGNN, SANCUS and the
# baselines differ from the one setting only in fetching raw features in every epoch. Rows at their best have
# the one setting's model.
SYSTEMS, AT_PAPERS, AT_BEST = (
    experiment.one(name).rows for name in ("systems", "systems_at_papers", "systems_at_best")
)
ROWS = {ONE: SYSTEMS, PAPERS: AT_PAPERS, BEST: AT_BEST}
HEADINGS = {ONE: "One setting for all", PAPERS: "The papers’ settings", BEST: "Each at its best"}


@command("halobench study")
def main(words: list[str], program: str) -> int:
    """Exit code 1 where a sweep failed, its runs left out; 128 + signal where it was stopped."""
    return until_stopped(lambda: _main(words, program))


def _main(words: list[str], program: str) -> int:
    parser = Parser(prog=program, description=__doc__.partition(": ")[2].partition("\n\n")[0])
    parser.add_argument(
        "--graphs", nargs="+", default=list(GRAPHS), metavar="GRAPH", help=f"of {', '.join(GRAPHS)}"
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        metavar="SYSTEM",
        help=f"rows to make, in a table of their own (default all):"
        f" {', '.join(dict.fromkeys([*SYSTEMS, *AT_PAPERS, *AT_BEST]))}",
    )
    experiment.add_rows(parser)
    parser.add_argument(
        "--kinds", nargs="+", default=list(ROWS), metavar="KIND", help=f"of {', '.join(map(repr, ROWS))}"
    )
    parser.add_argument("--partitions", help="default metis,random, or what the graph's own plan says")
    parser.add_argument("--seeds", help="default 1,2,3, or what the graph's own plan says")
    parser.add_argument("--epochs", type=int, help="default 200, or what the graph's own plan says")
    runner.add_places(parser, "results/study/README.md", "the page")
    parser.add_argument(
        "--only-there",
        action="store_true",
        help="start nothing: make the page of the runs that have finished",
    )
    asked = parser.parse_args(words)
    # What is asked for, checked before anything runs.
    known = sorted({row for kind in ROWS for row in rows_of(kind, asked.row)})
    asked.systems = asked.systems or known
    for given, what, options in (
        (asked.graphs, "graph", GRAPHS),
        (asked.systems, "system", known),
        (asked.kinds, "kind", ROWS),
    ):
        for each in given:
            choice(what, each, options)
    # For each graph and kind: run what is lacking, then write the table and the page anew.
    console, failed = Terminal(stderr=True), False
    places = Places.of(asked)
    with writing(asked.out, "give another --out"):
        asked.out.parent.mkdir(parents=True, exist_ok=True)
    check_place("out", asked.out)
    made = read_table(asked.out.with_name(TABLE))
    here = [name for name in asked.graphs if runner.is_here(GRAPHS[name].graph, places.data_dir)]
    for name in asked.graphs:
        if name not in here:
            console.say(f"{name} is not in {places.data_dir}, left out")
    for name in here:
        for kind in asked.kinds:
            extent = extent_of(name, kind, asked)
            there, unmade, bad = gather(name, kind, extent, asked, places, console)
            failed |= bad
            of_graph = made[made["graph"] == name]
            if there or (unmade and len(of_graph)):
                parts = set(of_graph[of_graph["kind"] == kind]["part"])
                some = some_of(kind, asked)
                for partition, rows in tables_of(there, unmade, said_of(kind, extent, name, asked)).items():
                    # Where nothing has finished, a table of before stays, and some rows get none.
                    if partition in there or not (some or partition in parts):
                        made = with_part(made, (name, kind, partition + some), rows)
                made = ordered(made, list(GRAPHS), list(ROWS))
                _write(asked.out.with_name(TABLE), made.to_csv(index=False, lineterminator="\n"))
                _write(asked.out, page(made))
    if made.empty and not here:
        raise InputError(f"--data-dir {places.data_dir} holds none of these graphs; give another")
    if made.empty:
        mend = "; leave out --only-there" if asked.only_there else ""
        raise InputError(f"no run has finished in {places.results}{mend}")
    print(asked.out)
    return int(failed)


def _write(path: Path, text: str) -> None:
    """Write a file whole: what was there stays where that fails."""
    with writing(path, "give another --out"), replacing(path, "w") as file:
        file.write(text)


def rows_of(kind: str, more: Sequence[str]) -> dict[str, str]:
    """The rows of a kind, `more` ("NAME=OVERRIDES") among those at the one setting. InputError where one of
    them cannot be read or has the name of another."""
    return experiment.with_rows(ROWS[kind], more if kind == ONE else ())


def some_of(kind: str, asked: argparse.Namespace) -> str:
    """What follows the partition in the heading of a part that lacks rows of its kind: the rows that it
    has."""
    every = rows_of(kind, asked.row)
    rows = [row for row in every if row in asked.systems]
    return "" if len(rows) == len(every) else f": {', '.join(rows)}"


def extent_of(name: str, kind: str, asked: argparse.Namespace) -> Extent:
    """How much is run of a kind of rows on a graph: what was asked for, or else the graph's own plan."""
    given = {
        key: getattr(asked, key)
        for key in ("seeds", "epochs", "partitions")
        if getattr(asked, key) is not None
    }
    return replace(GRAPHS[name].extent(kind), **given)


def gather(
    name: str, kind: str, extent: Extent, asked: argparse.Namespace, places: Places, console: Terminal
) -> tuple[dict[str, dict[Path, str]], dict[str, list[str]], bool]:
    """Run what a graph lacks of a kind of rows. Returns, by partition, finished run folders with their rows;
    by partition, the rows that lack runs; and whether a run failed.

    InputError where what is asked for is no run.
    """
    there: dict[str, dict[Path, str]] = {}
    unmade: dict[str, list[str]] = {}
    failed = False
    for row, how in rows_of(kind, asked.row).items():
        if row not in asked.systems:
            continue
        for partition in extent.partitions.split(","):
            sweep = sweep_of(name, how, replace(extent, partitions=partition))
            started = time.monotonic()
            runs = runner.composed(runner.expand(sweep), places)
            folders = [run.directory for run in runs]
            missing = runner.lacking(runs)
            try:
                if missing and not asked.only_there:
                    runner.start(sweep, places, missing)
                    console.say(
                        f"{name}, {kind}, {row}, {partition}: {counted(len(missing), 'run')},"
                        f" {time.monotonic() - started:.0f} s"
                    )
            except InputError as error:
                console.say(f"error: {error}", style="red")
                failed = True
            finished = runner.finished(folders)
            there.setdefault(partition, {}).update(dict.fromkeys(finished, row))
            if len(finished) < len(folders):
                some = f" (there: {len(finished)} of {len(folders)} runs)" if finished else ""
                unmade.setdefault(partition, []).append(row + some)
    return {partition: found for partition, found in there.items() if found}, unmade, failed


def sweep_of(graph: str, asked: str, extent: Extent) -> str:
    """The sweep of a row's runs (`asked`, as on the command line) on a graph. Of a key that both give, the
    study's value is taken, which the heading says, but for the partition and a row's EPOCHS/5."""
    study = GRAPHS[graph]
    for word, other in study.instead.items():
        asked = asked.replace(word, other)
    runs = f"gpus=4 epochs={extent.epochs} seed={extent.seeds} evaluate.every=10"
    ours = {*key_values([*runs.split(), *study.graph.split()[1:]]), "dataset", "workers"}
    words = [word for word in asked.split() if key_of(word) not in ours or "=EPOCHS/" in word]
    asked, system = " ".join(words), " ".join(word for word in words if word.startswith("system="))
    if not runner.brings_partition(system):
        runs += f" partition={extent.partitions}"
    plan = Experiment("study", rows={"row": asked}, sizes={"small": Size([study.graph], runs, 0)})
    return plan.sweep("row", "small", study.graph)


def said_of(kind: str, extent: Extent, name: str, asked: argparse.Namespace) -> list[str]:
    """How what was asked for differs from the graph's own plan, as on the command line."""
    plan = GRAPHS[name].extent(kind)
    said = [
        f"--{key} {getattr(extent, key)}"
        for key in ("seeds", "epochs")
        if getattr(extent, key) != getattr(plan, key)
    ]
    if kind == ONE:
        said += [f'--row "{row}"' for row in asked.row]
    return [f"Made with `{' '.join(said)}`."] if said else []


def heading(name: str, kind: str) -> str:
    """The heading of a graph's rows of a kind, with epochs and seeds of the graph's own plan."""
    extent = GRAPHS[name].extent(kind)
    seeds = len(extent.seeds.split(","))
    return f"{HEADINGS[kind]}: {counted(extent.epochs, 'epoch')}, {counted(seeds, 'seed')}"


def page(made: pd.DataFrame) -> str:
    """The page, made of a table that is `ordered`."""
    missing = [name for name in GRAPHS if name not in set(made["graph"])]
    said = [PAGE] + ([f"Not made yet: {', '.join(missing)}.\n"] if missing else [])
    for name, of_graph in made.groupby("graph", sort=False):
        said += [f"## {name}\n"]
        for kind, of_kind in of_graph.groupby("kind", sort=False):
            said += [f"### {heading(str(name), str(kind))}\n"]
            alike: dict[str, dict[str, pd.DataFrame]] = {}  # by the rows that they have, all or some
            for part, rows in of_kind.groupby("part", sort=False):
                partition, _, some = str(part).partition(": ")
                alike.setdefault(some, {})[partition] = rows
            said += [f"{shown(each)}\n" for each in alike.values()]
    return "\n".join(said)
