"""`python -m harness.study`: every system on real graphs, beside vanilla in both forms and the zero-halo control, as one page.

Runs that are lacking are started, one sweep a graph and system; those there are are reused. The page is made of the report's tables
alone, a section a graph, written as soon as that graph is through; sections of graphs that were not asked for stay as they are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness import overrides
from harness.check import InputError, choice
from harness.config import brings_partition, configured
from harness.figures import runs
from harness.figures.runs import Places

# Where accuracy can tell a working system from a dead one, and where only bytes and time are of interest.
GRAPHS = {
    "cora": "cora",
    "amazon-photo": "amazon-photo dataset.split=low_label",
    "amazon-computers": "amazon-computers dataset.split=low_label",
    "dblp": "dblp dataset.split=low_label",
    "coauthor-physics": "coauthor-physics",
    "tolokers": "tolokers",
}
# Each system at its paper's settings.
SYSTEMS = {
    "vanilla": "system=vanilla system.features=refetch,once",
    "zero_halo": "system=zero_halo",
    "local": "system=local",
    "cdfgnn": "system=cdfgnn system.features=refetch",
    "sancus": "system=sancus system.features=once system.staleness=epoch_fixed system.bound=1",
    "sancus-h": "system=sancus system.features=once system.staleness=variation_gap system.bound=0.02",
    "pscgcn": "system=pscgcn system.features=refetch",
    "digest": "system=digest system.interval=10",
    "digest_a": "system=digest_a system.interval=10",
    "capgnn": "system=capgnn cluster=capgnn/x4",
    "cagnet": "system=cagnet system.features=once",
    "skipg": "system=skipg system.features=once",
    "pipegcn": "system=pipegcn",
    "bns": "system=bns system.features=once system.rate=0.1",
    "adaqp": "system=adaqp system.features=once system.bits=4",
    "llcg": "system=llcg",
}
PAGE = """# Systems on real graphs

Written by `python -m harness.study --data-dir ../shared/data`, and not edited; a graph made with other options says so. GCN of 2 layers,
hidden 64, dropout 0.5, Adam 0.01, weight decay 5e-4, 4 workers.

- `vanilla` is there in both forms, since layer 0's features are static and fetching them once is exact. Each other system stands as its
  paper has it: `MB layer 0` is 0 where it fetches features once, and is to be compared with `vanilla features=refetch` where it is not.
- `zero_halo` is the control: a system no better than it uses no remote information. Evaluation is exact and sees the whole graph for
  all, the control too.
- Times are of the machine named; where it has fewer cores than workers, wall time says nothing of the system, and communication is
  given as CPU seconds: what the training thread spent waiting, and the transport's threads. `cluster=` names device figures that
  CaPGNN's RAPA reads; nobody ran on them.
- What each system does, knob by knob: the pages beside this one.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 where a sweep failed, its runs left out; 2 with one sentence where what was given cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m harness.study", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), metavar="GRAPH", help=f"of {', '.join(GRAPHS)}")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), metavar="SYSTEM", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--partitions", default="random,metis", help="default random,metis")
    parser.add_argument("--seeds", default="1,2,3", help="default 1,2,3")
    parser.add_argument("--epochs", type=int, default=200, help="default 200")
    parser.add_argument("--out", type=Path, default=Path("docs/systems/README.md"), help="the page (default docs/systems/README.md)")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where runs are found and go (default results)")
    parser.add_argument("--cache", type=Path, default=Path("results/cache"), help="graphs and shards (default results/cache)")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="raw data sets (default data)")
    parser.add_argument("--only-there", action="store_true", help="start nothing: make the page of the runs that have finished")
    asked = parser.parse_args(arguments)
    try:
        for graph in asked.graphs:
            choice("graph", graph, GRAPHS)
        for system in asked.systems:
            choice("system", system, SYSTEMS)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console, places, failed = Console(stderr=True), Places(asked.results, asked.cache, asked.data_dir), False
    made = read_sections(asked.out)
    for name in asked.graphs:
        if not runs.is_here(name, places.data_dir):
            console.print(f"{name} is not in {places.data_dir}, left out", highlight=False)
            continue
        there: list[Path] = []
        unmade: list[str] = []
        for system in asked.systems:
            sweep = sweep_of(name, system, asked.partitions, asked.seeds, asked.epochs)
            started = time.monotonic()
            try:
                overrides.check(["-m", *sweep.split()], runs.CONF)
                folders = runs.folders(sweep, places)
            except InputError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            missing = len(folders) - len(runs.finished(folders))
            try:
                if missing and not asked.only_there:
                    runs.start(sweep, places)
                    console.print(f"{name} {system}: {missing} runs, {time.monotonic() - started:.0f} s", highlight=False)
            except InputError as error:
                console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
                failed = True
            finished = runs.finished(folders)
            there += finished
            if len(finished) < len(folders):
                unmade.append(system if not finished else f"{system} (there: {len(finished)} of {len(folders)} runs)")
        if there:
            made[name] = section(there, unmade, options(parser, asked))
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(page(made))
    if not made:
        print(f"error: no run has finished in {places.results}; leave out --only-there", file=sys.stderr)
        return 2
    print(asked.out)
    return int(failed)


def sweep_of(graph: str, system: str, partitions: str, seeds: str, epochs: int) -> str:
    asked = SYSTEMS[system]
    name = asked.split()[0].removeprefix("system=")
    if not brings_partition(configured()[name]):
        asked += f" partition={partitions}"
    return f"{asked} dataset={GRAPHS[graph]} gpus=4 epochs={epochs} seed={seeds} evaluate.every=10"


def options(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> str:
    """What was asked for that shapes a graph's runs and is not the default, as on the command line."""
    given = {key: getattr(asked, key) for key in ("partitions", "seeds", "epochs")}
    return "".join(f" --{key} {value}" for key, value in given.items() if value != parser.get_default(key))


def section(folders: Sequence[Path], unmade: list[str], given: str) -> str:
    """One graph's part of the page: how it differs from the rest, what is missing, the table."""
    from harness.report import groups, table  # pandas: only where there is something to tell of

    compared, _ = groups.load(folders)
    said = [f"Made with `{given.strip()}`."] if given else []
    said += [f"Not made when this was written: {', '.join(unmade)}."] if unmade else []
    return "\n\n".join([*said, table.markdown(compared)]).strip()


def page(made: dict[str, str]) -> str:
    missing = [name for name in GRAPHS if name not in made]
    head = [PAGE, f"Not made yet: {', '.join(missing)}.\n"] if missing else [PAGE]
    return "\n".join([*head, *(f"## {name}\n\n{made[name]}\n" for name in GRAPHS if name in made)])


def read_sections(path: Path) -> dict[str, str]:
    """The sections of a page written before, by graph; none where there is no page."""
    parts = path.read_text().split("\n## ")[1:] if path.exists() else []
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts)}


if __name__ == "__main__":
    sys.exit(main())
