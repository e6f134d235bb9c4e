"""The commands of the report; they read traces and run nothing.

halobench report RUN... [--columns A,B | --all] [--format FORMAT]
halobench report compare A B [--over KEY]               (two sides, paired over seeds, with a verdict)
halobench report perfetto RUN --out FILE                (a run's spans, for ui.perfetto.dev)
halobench report plot RUN... [--x KEY] [--pareto] [--front] [--out DIR]"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.results.report.table import Section

from harness.base.errors import InputError, did_you_mean, writing
from harness.base.subcommand import RUN_HELP, Parser, command
from harness.base.terminal import Terminal, printable
from harness.results.reader import Trace
from harness.results.report import formats, groups


@command("halobench report")
def main(words: list[str], program: str) -> None:
    """Run a subcommand of the report."""
    parser = Parser(
        prog=program,
        description="Tables and pictures of finished runs.",
        epilog="`halobench report RUN...` is `table`. `halobench report html`: one page with the answer."
        " `halobench report claims`: verdicts on what papers print.",
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, act: Callable[[argparse.Namespace], None], said: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=said.replace("%", "%%"), description=said)
        made.set_defaults(act=act)
        return made

    # One parser per subcommand, with its arguments.
    tables = add("table", _table, "runs side by side: mean and 95 % interval over seeds")
    plots = add("plot", _plot, "accuracy over time, bytes and epochs; where an epoch's time goes")
    spans = add("perfetto", _perfetto, "a run's spans as a file for ui.perfetto.dev")
    spans.add_argument("run", metavar="RUN", type=Path, help="a run folder")
    spans.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("spans.json"), help="default: spans.json"
    )
    spans.add_argument(
        "--epochs", metavar="FIRST-LAST", default="1-", help="counted from 1, as 10-12 or 10- (default: all)"
    )
    sides = "two systems, or two settings of one: differences paired over seeds, and a verdict"
    compare = add("compare", _compare, sides)
    for side in ("A", "B"):
        compare.add_argument(
            side.lower(),
            metavar=side,
            help="a run folder (its repeats with other seeds beside it count too), a folder above some, or a"
            " glob pattern",
        )
    # Folders from a pattern without quotes. With a default, no error about what is missing names them.
    compare.add_argument("more", nargs="*", default=[], help=argparse.SUPPRESS)
    compare.add_argument(
        "--over", metavar="KEY", action="append", default=[], help="what else the two may differ in"
    )
    for each in (tables, plots):
        each.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    tables.add_argument(
        "--metric",
        metavar="NAME",
        action="append",
        default=[],
        help="a further column: what systems record under this name (metrics.parquet), in the mean",
    )
    which = tables.add_mutually_exclusive_group()
    which.add_argument(
        "--columns",
        metavar="A,B",
        type=lambda given: [name.strip() for name in given.split(",")],
        default=(),
        help="these columns, by heading or by their names in a csv, and system, score, time, note (default:"
        " the eight or fewer that say most)",
    )
    which.add_argument(
        "--all", dest="columns", action="store_const", const=None, help="every column, and what it is"
    )
    tables.add_argument(
        "--format",
        choices=tuple(formats.FORMATS),
        help="print it so: best values are marked in each, csv has every column, its numbers in full"
        " precision, latex the columns that compare systems",
    )
    plots.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        default=Path("figures"),
        help="where the pictures go (default: figures)",
    )
    plots.add_argument(
        "--x", metavar="KEY", help="score, bytes and time against this key, as system.bound, in their stead"
    )
    plots.add_argument(
        "--pareto", action="store_true", help="score against bytes and time of an epoch, in their stead"
    )
    plots.add_argument(
        "--front",
        action="store_true",
        help="score against the bytes of a whole run, default settings joined to tuned ones, in their stead",
    )
    plots.add_argument("--format", choices=("png", "pdf", "svg"), default="png", help="default: png")
    plots.add_argument(
        "--no-title", action="store_true", help="for a paper, whose captions say what is shown"
    )
    # Words without a subcommand are those of `table`.
    if words and words[0] not in commands.choices and words[0] not in ("-h", "--help"):
        if not Path(words[0]).exists() and (near := did_you_mean(words[0], commands.choices)).endswith("?"):
            raise InputError(f"{words[0]} is neither a run nor a report{near}")
        words.insert(0, "table")
    given = parser.parse_args(words)
    given.act(given)


def span_of_epochs(given: str) -> tuple[int, int | None]:
    """The first and the last epoch, counted from 0, of a span counted from 1: (9, 11) of "10-12", (9, None)
    of "10-". InputError for any other text."""
    found = re.fullmatch(r"(\d+)-(\d*)", given)
    if not found or int(found[1]) < 1 or (found[2] and int(found[2]) < int(found[1])):
        raise InputError(f'--epochs "{given}" names no epochs: give FIRST-LAST, as 10-12, or FIRST-, as 10-')
    return int(found[1]) - 1, int(found[2]) - 1 if found[2] else None


def _perfetto(given: argparse.Namespace) -> None:
    from harness.results.report import perfetto

    with writing(given.out, "give another --out"):
        count = perfetto.write(Trace(given.run), given.out, *span_of_epochs(given.epochs))
    print(f"{given.out}: {count} events; open it in https://ui.perfetto.dev")


def _compare(given: argparse.Namespace) -> None:
    from harness.results.report import versus

    if given.more:
        raise InputError(
            f"report compare has two sides, and {2 + len(given.more)} were given: put each pattern in quotes"
        )
    found = versus.versus(versus.side(given.a), versus.side(given.b), given.over)
    print(printable(versus.text(found)))


def begun(paths: Iterable[str | Path], **how: Any) -> list[groups.Group]:
    """The groups that `groups.load` gives; runs that have not finished an epoch are named on stderr."""
    compared, empty = groups.load(paths, **how)
    for path in empty:
        print(f"left out {path}: it has not finished an epoch", file=sys.stderr)
    return compared


def _plot(given: argparse.Namespace) -> None:
    from harness.results.report import front, plot, sweep_plots  # matplotlib takes a second to import

    compared, titled = begun(given.runs, x=given.x), not given.no_title

    def of(section: Section) -> dict[str, Any]:
        made = {}
        if given.x is not None and sweep_plots.varies(given.x, section.groups):
            made[f"over-{given.x}"] = sweep_plots.over_knob(given.x, section)
        elif given.x is not None:
            print(f"left out {section.title}: --x {given.x} has no two values there", file=sys.stderr)
        if given.pareto:
            made["pareto"] = sweep_plots.pareto(section, given.x, titled)
        if given.front:
            made["front"] = front.draw(section.groups)
        return made

    if given.x is not None:
        sweep_plots.check_key(given.x, compared)
    chosen = of if given.x is not None or given.pareto or given.front else None
    with writing(given.out, "give another --out"):
        for path in plot.draw(compared, given.out, chosen, format=given.format, titled=titled):
            print(path)


def _table(given: argparse.Namespace) -> None:
    names, form = given.columns, given.format
    if names and form not in (None, "markdown"):
        raise InputError(f"--columns is for text and markdown, and {form} has every column: leave it out")
    compared, console = begun(given.runs, metrics=given.metric), Terminal()
    if names:
        formats.check_columns(names, compared)
    if form == "markdown":
        print(printable(formats.markdown(compared, names)))
    elif form:
        print(printable(formats.FORMATS[form](compared)))
    elif console.is_terminal:
        for part in formats.rich_tables(compared, console.width, names):
            console.print(part)
    else:
        print(formats.plain(compared, names))
