"""Draw figures of the papers from runs: start those that are lacking, reuse those there are.

A figure is an experiment (`conf/experiment/NAME.yaml`): it makes the experiment's runs, draws them and prints
what they decide. The name of a published figure, table or claim (`cdfgnn_fig7`) stands for the experiments
that decide a part of it. Figures of one's own are in a folder that `--from` names; see
`harness/papers/figures/__init__.py`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.base.errors import InputError, choice, writing
from harness.base.subcommand import Parser, command
from harness.base.terminal import Terminal, counted
from harness.papers.claims import experiment, published
from harness.papers.figures.make import Figure, available, here, make
from harness.results.reader import STARTED
from harness.run import overrides, runner
from harness.run.process import until_stopped
from harness.run.runner import Places


@command("halobench figures")
def main(words: list[str], program: str) -> int:
    """Exit code 1 where a run failed, its figure left out; 128 + signal where it was stopped."""
    return until_stopped(lambda: _main(words, program))


def _main(words: list[str], program: str) -> int:
    first, _, more = __doc__.partition("\n\n")
    parser = Parser(prog=program, description=first, epilog=more)
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="name every figure and what it shows")
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="a folder of one's own instead of these: experiments, a NAME.yaml each, and what draws them",
    )
    parser.add_argument(
        "--graph",
        metavar="OVERRIDES",
        help='another graph than the figures\' own, as "dblp dataset.split=low_label"',
    )
    experiment.add_rows(parser)
    parser.add_argument(
        "--size",
        choices=experiment.SIZES,
        help="how much is run (default: the smallest that each has, smoke, with runs in results/started)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keep verdicts, a table of the runs and the PNGs there, for `halobench report claims` where the"
        " runs are gone",
    )
    runner.add_places(
        parser, "results/figures", "where each picture goes as PNG and PDF, with its data as CSV"
    )
    parser.set_defaults(results=None)
    asked = parser.parse_args(words)
    if asked.results is None:  # runs of size smoke tell nothing: tables and pages leave them out
        smoke = not (asked.folder or asked.graph) and asked.size in (None, experiment.SIZES[0])
        asked.results = Path("results", STARTED) if smoke else Path("results")
    # Which figures are asked for, and the checks that need no run.
    console = Terminal(stderr=True)
    folder = asked.folder or experiment.FOLDER
    known = available(folder, asked.size, asked.folder is not None, asked.row)
    chosen = wanted(asked.names, known, folder, asked.size)
    if asked.graph:
        overrides.check(f"dataset={asked.graph}".split())
    if asked.keep:
        from harness.papers.claims import reference  # pandas: only here

        if asked.graph:
            raise InputError(f"keep={asked.keep} keeps experiments on their own graphs: leave out --graph")
        for figure in chosen:
            reference.check(asked.keep / figure.name, figure.size)
    if asked.list:
        width = max(map(len, known))
        for name, figure in known.items():
            print(f"{name:<{width}}  {figure.plan.title}")
        return 0
    # One figure after another: one that fails leaves the others to be made.
    places, failed = Places.of(asked), False
    with writing(asked.out, "give another --out"):
        asked.out.mkdir(parents=True, exist_ok=True)
    total = sum(figure.plan.sizes[figure.size].minutes for figure in chosen)
    if len(chosen) > 1 and total:
        sizes = " and ".join(size for size in experiment.SIZES if size in {each.size for each in chosen})
        console.say(
            f"{len(chosen)} figures of size {sizes}, from nothing: about {counted(f'{total:g}', 'minute')} on"
            " two cores"
        )
    for figure in chosen:
        try:
            graphs = [asked.graph] if asked.graph else here(figure, places, console)
            if asked.keep and len(graphs) < len(figure.graphs):
                raise InputError(
                    f"keep={asked.keep} keeps experiments whole: give --data-dir, or leave it out"
                )
            if graphs:
                make(figure, graphs, places, asked.out, console, asked.keep)
        except InputError as error:
            console.say(f"error: {figure.name}: {error}", style="red")
            failed = True
    return int(failed)


def wanted(names: Sequence[str], known: Mapping[str, Figure], folder: Path, size: str | None) -> list[Figure]:
    """The figures that are asked for: by their names, or by what is published; all where none is named."""
    plans = experiment.load(folder)
    entries: dict[str, list[str]] = {}  # published: experiments with a part of it
    for name, plan in plans.items():
        for entry in {part.entry for part in plan.claims} | {part.entry for part in plan.needs}:
            entries.setdefault(entry, []).append(name)
    found = []
    for name in names:
        choice("figure", name, (*known, *plans, *entries))
        meant = [name] if name in known or name in plans else entries[name]
        deciding = [each for each in meant if each in known]
        if not deciding:
            plan = plans[meant[0]]
            of_size = f" of size {size}" if size and plan.sizes else ""
            raise InputError(f"{name} has no runs{of_size}{_instead(name, plan)}")
        found += deciding
    return [known[name] for name in dict.fromkeys(found or known)]


def _instead(name: str, plan: experiment.Experiment) -> str:
    if plan.sizes:
        return f": give --size {' or '.join(plan.sizes)}"
    needs = [need.needs for need in plan.needs if need.entry == name]
    title = published.entries()[name].title if needs else plan.title
    return f" yet ({title}): it needs {'; '.join(needs) or 'what its file says'}"
