"""`python -m harness.study`: Every system on real graphs, beside exact training and the control, as one page.

Two kinds of rows: all systems at one setting, and each system at its paper's own setting beside exact
training and the control at the same. Runs that are lacking are started, one sweep per graph and row; those
there are are reused. The page is made of the report's tables alone, a section per graph with a part for each
kind of rows and partition, written as soon as that kind is through; what was not asked for stays as it is.
Some of the rows alone are a part of their own, below the one that has them all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.base.terminal import Terminal, counted
from harness.check import InputError, choice
from harness.claims import experiment
from harness.run import runner
from harness.run.process import until_stopped
from harness.run.runner import Places

ONE, PAPERS = "one setting", "papers' settings"


@dataclass(frozen=True)
class Extent:
    """How much of a kind of rows is run on a graph: seeds, epochs and partitions, as on the command line."""

    seeds: str = "1,2,3"
    epochs: int = 200
    partitions: str = "metis,random"


@dataclass(frozen=True)
class Study:
    """A graph, as overrides, and how much of each kind of rows is run on it.

    instead   words of a row, and what the graph's runs have in their place
    """

    graph: str
    one: Extent = Extent()
    papers: Extent = Extent()
    instead: dict[str, str] = field(default_factory=dict)

    def extent(self, kind: str) -> Extent:
        return self.one if kind == ONE else self.papers


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
        instead=LARGER,
    ),
}
# Rows at one setting: raw features once, the model and optimiser of conf/. Rows at the papers' settings, with
# exact training and the control at each of them: CDFGNN's, SANCUS's and the baselines' differ from the one
# setting in fetching raw features in every epoch alone.
SYSTEMS, AT_PAPERS = (experiment.one(name).rows for name in ("systems", "systems_at_papers"))
ROWS = {ONE: SYSTEMS, PAPERS: AT_PAPERS}
HEADINGS = {ONE: "One setting for all", PAPERS: "The papers’ settings"}
PAGE = """# Systems on real graphs

Written by `python -m harness.study --data-dir ../shared/data`, and not edited; what was made with other
options says so. 4 workers. Each graph has two kinds of rows:

- **One setting for all**: GCN of 2 layers, hidden 64, dropout 0.5, Adam 0.01, weight decay 5e-4, no norm;
  raw features fetched once, which is exact (`vanilla, refetch` fetches them in every epoch). What
  differs between rows is the system alone.
- **The papers' settings**: each system as its paper has it, beside exact training (`vanilla`) and the
  control (`zero_halo`) at the same model and optimiser: PipeGCN with GraphSAGE, layer norm, no weight decay
  and smoothing of features and gradients; PSC-GCN with layer norm and no weight decay; CaPGNN with 3 layers
  of 256, layer norm, weight decay 0.01; DIGEST with rows of length 1 (its line 11). All but PipeGCN and
  DIGEST fetch raw features in every epoch there, as their papers do, so that `MB layer 0` is to be compared
  with the `vanilla` there. What the papers leave open is as at the one setting.

METIS leads; random partitions are the stress test: most of a row's weight is remote there, and staleness by
an epoch under Adam need not settle ([why](../staleness.md)). CDFGNN stands in both tables with a vertex-cut
of its own (EBV).

- `zero_halo` is the control: a system no better than it uses no remote information. Where exact training is
  no better than it either, the notes below a table say so: accuracy tells nothing there. Evaluation is
  exact and sees the whole graph for all, the control too.
- `llcg` takes five optimiser steps per epoch; its row of a fifth of the epochs takes as many steps as the
  others. `distdgl` and `bytegnn` take one per mini-batch of 4 x 32 training vertices (4 x 1000 on tolokers
  and coauthor-physics, where most vertices train), `gas`, `cluster_gcn` and `graphsaint` one per subgraph:
  compare them over time, bytes and steps, and not over epochs.
- Times are of the machine named; where it has fewer cores than workers, wall time says nothing of the
  system, and communication is given as CPU seconds: what the training thread spent waiting, and the
  transport's threads. `cluster=` names device speeds that CaPGNN's RAPA reads; nobody ran on them.
- A row that is neither in a graph's tables nor named there as not made is younger than the tables.
- What each system does, knob by knob: the pages beside this one.
"""


def main(arguments: Sequence[str] | None = None, program: str = "python -m harness.study") -> int:
    """Exit code 0; 1 where a sweep failed, its runs left out; 2 with one sentence where what was given cannot
    be used; 128 + signal where it was stopped.
    """
    return until_stopped(lambda: _main(arguments, program))


def _main(arguments: Sequence[str] | None, program: str) -> int:
    parser = argparse.ArgumentParser(prog=program, description=__doc__.partition(": ")[2].partition("\n")[0])
    parser.add_argument(
        "--graphs", nargs="+", default=list(GRAPHS), metavar="GRAPH", help=f"of {', '.join(GRAPHS)}"
    )
    parser.add_argument(
        "--systems",
        nargs="+",
        metavar="SYSTEM",
        help=f"rows to make, in a table of their own (default all):"
        f" {', '.join(dict.fromkeys([*SYSTEMS, *AT_PAPERS]))}",
    )
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="NAME=OVERRIDES",
        help='one more row at the one setting, as mine="system=mine system.x=1"; may be given several times',
    )
    parser.add_argument(
        "--kinds", nargs="+", default=list(ROWS), metavar="KIND", help=f"of {', '.join(map(repr, ROWS))}"
    )
    parser.add_argument("--partitions", help="default metis,random, or what the graph's own plan says")
    parser.add_argument("--seeds", help="default 1,2,3, or what the graph's own plan says")
    parser.add_argument("--epochs", type=int, help="default 200, or what the graph's own plan says")
    runner.add_places(parser, "docs/systems/README.md", "the page")
    parser.add_argument(
        "--only-there",
        action="store_true",
        help="start nothing: make the page of the runs that have finished",
    )
    asked = parser.parse_args(arguments)
    try:
        rows = {row for kind in ROWS for row in rows_of(kind, asked.row)}
        known, asked.systems = sorted(rows), asked.systems or sorted(rows)
        for given, field, options in (
            (asked.graphs, "graph", GRAPHS),
            (asked.systems, "system", known),
            (asked.kinds, "kind", ROWS),
        ):
            for each in given:
                choice(field, each, options)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console, failed = Terminal(stderr=True), False
    places = Places.of(asked)
    made = read_sections(asked.out)
    for name in asked.graphs:
        if not runner.is_here(GRAPHS[name].graph, places.data_dir):
            console.print(f"{name} is not in {places.data_dir}, left out", highlight=False)
            continue
        for kind in asked.kinds:
            extent = extent_of(name, kind, asked)
            try:
                there, unmade, bad = gather(name, kind, extent, asked, places, console)
            except InputError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            failed |= bad
            if there or (unmade and name in made):
                tables = tables_of(there, unmade, said_of(kind, extent, name, asked))
                parts = made.setdefault(name, {}).setdefault(kind, {})
                some = some_of(kind, asked)
                for partition, table in tables.items():
                    # Where nothing has finished, a table of before stays, and some rows get none.
                    if partition in there or not (some or partition in parts):
                        parts[partition + some] = table
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                asked.out.write_text(page(made))
    if not made:
        print(f"error: no run has finished in {places.results}; leave out --only-there", file=sys.stderr)
        return 2
    print(asked.out)
    return int(failed)


def rows_of(kind: str, more: Sequence[str]) -> dict[str, str]:
    """The rows of a kind, `more` ("NAME=OVERRIDES") among those at the one setting. InputError where one of
    them cannot be read or has the name of another.
    """
    return experiment.with_rows(ROWS[kind], more if kind == ONE else ())


def some_of(kind: str, asked: argparse.Namespace) -> str:
    """What follows the partition in the heading of a part that lacks rows of its kind: those it has."""
    every = rows_of(kind, asked.row)
    rows = [row for row in every if row in asked.systems]
    return "" if len(rows) == len(every) else f": {', '.join(rows)}"


def extent_of(name: str, kind: str, asked: argparse.Namespace) -> Extent:
    given = {
        key: getattr(asked, key)
        for key in ("seeds", "epochs", "partitions")
        if getattr(asked, key) is not None
    }
    return replace(GRAPHS[name].extent(kind), **given)


def gather(
    name: str, kind: str, extent: Extent, asked: argparse.Namespace, places: Places, console: Terminal
) -> tuple[dict[str, dict[Path, str]], dict[str, list[str]], bool]:
    """Run what a graph lacks of a kind of rows: by partition finished run folders and their rows, and rows
    that are not whole; and whether a run failed.

    InputError where what is asked for is no run.
    """
    there: dict[str, dict[Path, str]] = {}
    unmade: dict[str, list[str]] = {}
    failed = False
    for row, how in rows_of(kind, asked.row).items():
        if row not in asked.systems:
            continue
        for partition in extent.partitions.split(","):
            sweep = sweep_of(name, how, replace(extent, partitions=partition), places)
            started = time.monotonic()
            runs = runner.composed(runner.expand(sweep), places)
            folders = [run.directory for run in runs]
            missing = runner.lacking(runs)
            try:
                if missing and not asked.only_there:
                    runner.start(sweep, places, missing)
                    console.print(
                        f"{name}, {kind}, {row}, {partition}: {counted(len(missing), 'run')},"
                        f" {time.monotonic() - started:.0f} s",
                        highlight=False,
                    )
            except InputError as error:
                console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
                failed = True
            finished = runner.finished(folders)
            there.setdefault(partition, {}).update(dict.fromkeys(finished, row))
            if len(finished) < len(folders):
                some = f" (there: {len(finished)} of {len(folders)} runs)" if finished else ""
                unmade.setdefault(partition, []).append(row + some)
    return {partition: found for partition, found in there.items() if found}, unmade, failed


def sweep_of(graph: str, asked: str, extent: Extent, places: Places) -> str:
    """The sweep of a row's runs (`asked`, as on the command line) on a graph."""
    for word, other in GRAPHS[graph].instead.items():
        asked = asked.replace(word, other)
    system = " ".join(word for word in asked.split() if word.startswith("system"))
    if "partition=" not in asked and not runner.brings_partition(system, places):
        asked += f" partition={extent.partitions}"
    epochs = f"epochs={extent.epochs}"
    if "epochs=EPOCHS/5" in asked:
        asked, epochs = asked.replace(" epochs=EPOCHS/5", ""), f"epochs={max(1, extent.epochs // 5)}"
    return f"{asked} dataset={GRAPHS[graph].graph} gpus=4 {epochs} seed={extent.seeds} evaluate.every=10"


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


def kind_of(heading: str) -> str:
    return ONE if heading.startswith(HEADINGS[ONE]) else PAPERS


def heading(name: str, kind: str) -> str:
    """Of a graph's rows of a kind, by the graph's own plan."""
    extent = GRAPHS[name].extent(kind)
    seeds = len(extent.seeds.split(","))
    return f"{HEADINGS[kind]}: {counted(extent.epochs, 'epoch')}, {counted(seeds, 'seed')}"


def tables_of(
    there: dict[str, dict[Path, str]], unmade: dict[str, list[str]], said: list[str]
) -> dict[str, str]:
    """By partition: how it was made (`said`), what is missing, and the table."""
    # pandas: only where there is something to tell of.
    from harness.report import formats, groups

    made = {}
    for partition in dict.fromkeys([*there, *unmade]):
        missing = unmade.get(partition)
        lacks = [f"Not made when this was written: {'; '.join(missing)}."] if missing else []
        rows = there.get(partition)
        if rows is None:
            made[partition] = "\n\n".join([*said, *lacks])
            continue
        compared, _ = groups.load(rows)
        row_of = {id(group): rows[group.runs[0].path] for group in compared}
        order, groups_of = list(dict.fromkeys(rows.values())), Counter(row_of.values())
        compared.sort(key=lambda group: order.index(row_of[id(group)]))
        for group in compared:
            row = row_of[id(group)]
            group.label = row + group.more_steps if groups_of[row] == 1 else f"{row}: {group.label}"
        made[partition] = "\n\n".join([*said, *lacks, formats.markdown(compared)])
    return made


def what_rows_are() -> str:
    """What is asked for under each row's name, as on the command line."""
    said = ["## Rows"]
    for kind, rows in ROWS.items():
        said += [f"{kind.capitalize()}, behind `python -m harness -m`:".replace("Papers'", "The papers'")]
        said += ["\n".join(f"- {row}: `{asked}`" for row, asked in rows.items())]
    return "\n\n".join(said) + "\n"


# By graph, kind of rows, and heading: the partition, and after a colon the rows where they are some alone.
Sections = dict[str, dict[str, dict[str, str]]]


def page(made: Sections) -> str:
    missing = [name for name in GRAPHS if name not in made]
    said = [PAGE, what_rows_are()] + ([f"Not made yet: {', '.join(missing)}.\n"] if missing else [])
    for name in GRAPHS:
        if name in made:
            said += [f"## {name}\n"]
        for kind in ROWS:
            tables = made.get(name, {}).get(kind, {})
            said += [f"### {heading(name, kind)}\n"] if tables else []
            said += [f"#### {partition}\n\n{tables[partition]}\n" for partition in sorted(tables, key=_place)]
    return "\n".join(said)


def _place(heading: str) -> tuple[int, str]:
    """METIS leads, random parts follow, then whatever else was asked for; some of the rows after all."""
    usual, partition = Extent.partitions.split(","), heading.partition(":")[0]
    return (usual.index(partition) if partition in usual else len(usual)), heading


def read_sections(path: Path) -> Sections:
    """The sections of a page written before; none where there is no page."""
    text = path.read_text() if path.exists() else ""
    return {
        name: {
            kind_of(heading): {partition: tables.strip() for partition, tables in _split(rows, "#### ")}
            for heading, rows in _split(section, "### ")
        }
        for name, section in _split(text, "## ")
    }


def _split(text: str, mark: str) -> list[tuple[str, str]]:
    """Headings that begin with `mark`, and what is below each up to the next."""
    parts = ("\n" + text).split("\n" + mark)[1:]
    return [(name, below) for name, _, below in (part.partition("\n") for part in parts)]


if __name__ == "__main__":
    sys.exit(main())
