"""The claims of the papers on the page: what is decided, and what lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.claims import evaluate, experiment, published, table
from harness.claims.evaluate import NOT_RUN, NOT_YET, Result
from harness.page.content import Cell, Table
from harness.run import runner
from harness.run.config import file_name
from harness.run.runner import Places

HEADINGS = ("paper", "claim", "part", "published", "here", "verdict", "why", "how to reproduce it")


def verdicts(results: Path, config_dir: Path | None = None) -> tuple[list[str], Table, Table]:
    """The counts; the parts that the runs in `results` say something of; and those that they do not."""
    found = evaluate.results(
        experiment.load(Path(runner.CONF) / "experiment"),
        _found_in(Places(results, results / "cache", Path("data"), config_dir)),
    )
    open_ = [each for each in found if each.verdict.word in (NOT_RUN, NOT_YET)]
    told = [each for each in found if each.verdict.word not in (NOT_RUN, NOT_YET)]
    return (
        table.counts(found),
        _table("Claims that these runs decide", told),
        _table("Claims that wait", open_),
    )


def _found_in(places: Places) -> evaluate.Folders:
    """The run folders of a sweep, which is on one graph. Composing its runs takes a tenth of a second each,
    which a graph without any run is spared.
    """

    def folders(sweep: str) -> list[Path]:
        given = dict(word.split("=", 1) for word in sweep.split() if word.startswith("dataset"))
        names = given.get("dataset.name", given["dataset"]).split(",")
        there = [places.results / file_name(name) for name in names]
        return runner.folders(sweep, places) if any(map(Path.is_dir, there)) else [there[0] / "none"]

    return folders


def _table(caption: str, results: Sequence[Result]) -> Table:
    return Table(
        caption,
        [(heading, heading not in ("published", "here"), "") for heading in HEADINGS],
        [[Cell(text) for text in _row(each)] for each in results],
    )


def _row(result: Result) -> tuple[str, ...]:
    entry = published.entries()[result.entry]
    size = f" --size {result.size}" if result.size else ""
    return (
        entry.paper,
        f"{entry.label}: {entry.title}",
        result.says,
        table.said(result.published),
        table.value(result.ours),
        result.verdict.word,
        "" if result.verdict.word == NOT_RUN else result.verdict.why,
        f"halobench figures {result.experiment}{size}" if result.verdict.word != NOT_YET else "",
    )
