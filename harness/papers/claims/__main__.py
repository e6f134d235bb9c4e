"""Every published figure, table and claim that a run could show: what is printed, what is found, the verdict.

Reads the runs that `halobench figures EXPERIMENT` has made, and starts none. A claim is decided at the
largest size ("paper", "small", "smoke") of which all its runs are there; where none are, what `halobench
figures --keep` has kept of it stands in, and says so.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from harness.base import tables
from harness.base.errors import InputError, choice, writing
from harness.base.subcommand import Parser, command
from harness.papers.claims import published, reference, table
from harness.papers.claims.evaluate import Result
from harness.papers.claims.reference import decided
from harness.run.runner import Places

RESULTS = Path("results")  # may lack: what is kept stands in for all runs then


@command("halobench report claims")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__.splitlines()[0], epilog=__doc__.split("\n\n")[1])
    parser.add_argument(
        "results", nargs="?", type=Path, default=RESULTS, help=f"where the runs are (default {RESULTS})"
    )
    parser.add_argument("--paper", metavar="PAPER", help="one paper only")
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="a folder with experiments of one's own, a NAME.yaml each, beside these",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        default=reference.FOLDER,
        metavar="FOLDER",
        help=f"what was kept of runs that are not there (default {reference.FOLDER})",
    )
    parser.add_argument(
        "--seconds",
        type=Path,
        metavar="FOLDER",
        help="draw predicted beside printed seconds there, a picture and a table per paper",
    )
    parser.add_argument("--format", choices=("markdown", "csv"), help="a table with a row per part")
    asked = parser.parse_args(words)
    if asked.paper:
        choice("paper", asked.paper, {entry.paper for entry in published.experiments().values()})
    for given, usual in ((asked.results, RESULTS), (asked.reference, reference.FOLDER)):
        if given != usual and not given.is_dir():
            raise InputError(f"{given} is no folder: give one that is there")
    if not asked.reference.is_dir():
        said = f"nothing is kept in {asked.reference}: give --reference FOLDER, the one of a clone"
        print(said, file=sys.stderr)
    places = Places(asked.results, asked.results / "cache", Path("data"))
    found = decided(asked.folder, places, asked.reference)
    if asked.paper:
        found = [each for each in found if published.entry(each.entry).paper == asked.paper]
    if asked.seconds:
        draw_seconds(found, asked.seconds)
    if asked.format == "csv":
        print(tables.csv(table.frame(found)), end="")
    elif asked.format:
        parts = table.frame(found)
        print(tables.markdown(list(parts), parts.to_numpy().tolist(), list(parts)))
        print("", *table.counts(found), sep="\n")
    else:
        print(table.plain(found))


def draw_seconds(found: Sequence[Result], folder: Path) -> None:
    """Per paper a picture of predicted beside printed seconds, predicted_PAPER.png, and its table."""
    import matplotlib

    from harness.papers.claims import seconds
    from harness.results.report import style

    known = seconds.table(found)
    if known.empty:
        raise InputError("no printed seconds have a prediction here: run the modelled experiments first")
    with writing(folder, "give --seconds another folder"), matplotlib.rc_context(style.STYLE):
        folder.mkdir(parents=True, exist_ok=True)
        for paper, each in known.groupby("paper"):
            stem = folder / f"predicted_{paper}"
            stem.with_suffix(".csv").write_text(tables.csv(each, float_format="%.6g"))
            picture = seconds.draw(each, f"{paper}: predicted over printed seconds (or percent of an epoch)")
            print(style.save(picture, stem.with_suffix(".png")))
            errors = seconds.errors(each).items()
            print(f"  {', '.join(f'{model}: median |log| {off:.3f}' for model, off in errors)}")
