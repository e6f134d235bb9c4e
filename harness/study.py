"""`python -m harness.study`: every system on real graphs, beside vanilla in both forms and the zero-halo control, as one page.

Runs that are lacking are started, one sweep a graph and system; those there are are reused. The page is made of the report's tables alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.check import InputError, choice
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
# Each system at its paper's settings. A vertex-cut has partitions of its own.
SYSTEMS = {
    "vanilla": "system=vanilla system.features=refetch,once",
    "zero_halo": "system=zero_halo",
    "cdfgnn": "system=cdfgnn",
    "sancus": "system=sancus system.features=once system.staleness=epoch_fixed system.bound=1",
    "sancus-h": "system=sancus system.features=once system.staleness=variation_gap system.bound=0.02",
    "pscgcn": "system=pscgcn",
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
VERTEX_CUT = ("cdfgnn",)
PAGE = """# Systems on real graphs

Written by the command below, and not edited. GCN of 2 layers, hidden 64, dropout 0.5, Adam 0.01, weight decay 5e-4, {epochs} epochs, seeds {seeds}, 4 workers.

    python -m harness.study --data-dir ../shared/data

- `vanilla` is there in both forms, since layer 0's features are static and fetching them once is exact. Each other system stands as its paper has it: `MB layer 0`
  is 0 where it fetches features once, and is to be compared with `vanilla features=refetch` where it is not.
- `zero_halo` is the control: a system no better than it uses no remote information. Evaluation is exact and sees the whole graph for all, the control too.
- Times are of the machine named; where it has fewer cores than workers, wall time says nothing of the system, and communication is given as CPU seconds: what
  the training thread spent waiting, and the transport's threads. `cluster=` names device figures that CaPGNN's RAPA reads; nobody ran on them.
- What each system does, knob by knob: the pages beside this one.

{lacking}
{tables}
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
    found: dict[Path, None] = {}
    unmade: dict[str, list[str]] = {}  # by graph: systems of which runs are lacking when the page is written
    for name in asked.graphs:
        if not runs.is_here(name, places.data_dir):
            console.print(f"{name} is not in {places.data_dir}, left out", highlight=False)
            continue
        for system in asked.systems:
            partitions = "ebv" if system in VERTEX_CUT else asked.partitions
            sweep = (f"{SYSTEMS[system]} dataset={GRAPHS[name]} partition={partitions} gpus=4 epochs={asked.epochs} "
                     f"seed={asked.seeds} evaluate.every=10")  # fmt: skip
            started = time.monotonic()
            try:
                missing = runs.lacking(sweep, places)
                if missing and not asked.only_there:
                    runs.start(sweep, places)
                    console.print(f"{name} {system}: {len(missing)} runs, {time.monotonic() - started:.0f} s", highlight=False)
            except InputError as error:
                console.print(f"error: {error}", style="red", highlight=False, soft_wrap=True)
                failed = True
            folders = runs.folders(sweep, places)
            there = [folder for folder in folders if (folder / "summary.json").exists()]
            found.update(dict.fromkeys(there))
            if len(there) < len(folders):
                unmade.setdefault(name, []).append(system if not there else f"{system} (there: {len(there)} of {len(folders)} runs)")
    if not found:
        print(f"error: no run has finished in {places.results}; leave out --only-there", file=sys.stderr)
        return 2
    from harness.report import groups, table

    compared, _ = groups.load(found)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    lacking = "".join(f"\nNot made when this was written, on {name}: {', '.join(systems)}.\n" for name, systems in unmade.items())
    asked.out.write_text(PAGE.format(epochs=asked.epochs, seeds=asked.seeds, lacking=lacking, tables=table.markdown(compared)))
    print(asked.out)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
