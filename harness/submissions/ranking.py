"""The page that ranks what was handed in: per graph, setting and track a table of all bundles' rows.

A row keeps the score where its difference to exact training of its own bundle, paired over two seeds or more,
has a mean of at most one point below 0 and an interval that is not all below 0
(`harness.results.report.advice`). Of the rows that keep it, the one that sends the fewest bytes is first.
Rows that lose score, the control and rows that diverged have no rank."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.cli.page.layout import Cell, Table, rendered
from harness.results import resolved
from harness.results.report import columns
from harness.results.report.advice import keeps
from harness.results.report.estimate import Estimate, estimate
from harness.results.report.labels import labels
from harness.results.summary import graph_name
from harness.results.track import system_of
from harness.submissions.bundle import Bundle, Submitted

HEADINGS = [
    *(("rank", False, "rank"), ("system", True, "system"), ("bundle", True, "bundle")),
    *(("test score %", False, "test_percent"), ("minus exact", False, "minus_exact")),
    *(("MB per epoch", False, "mb_epoch"), ("over exact", False, "mb_exact_ratio")),
    *(("ms per epoch", False, "ms_epoch"), ("seeds", False, "seeds"), ("machine", True, "machine")),
]
KINDS = {
    "real": "Public data sets",
    "own": "Graphs of those who hand in: nothing says whether they are real or made",
    "twin": "Twins: synthetic graphs with the statistics of real ones",
}


@dataclass
class Row:
    """Runs of a bundle that differ in their seed alone, beside the runs of exact training in the same bundle
    at the same setting; of several rows of these, `exact` is the one that sends the fewest bytes."""

    bundle: Bundle
    runs: list[Submitted]
    exact: list[Submitted]

    @property
    def first(self) -> Submitted:
        return self.runs[0]

    @property
    def diverged(self) -> bool:
        return any(run.told["diverged"] is not None for run in self.runs)

    @property
    def score(self) -> Estimate:
        """Its test score (%) over its seeds; without a value where a run diverged."""
        return estimate([] if self.diverged else map(score, self.runs))

    @property
    def ahead(self) -> Estimate:
        """Its score minus that of exact training, in points, paired over seeds."""
        exact = {run.seed: score(run) for run in self.exact}
        pairs = [(score(run), exact.get(run.seed)) for run in self.runs]
        return estimate([] if self.diverged else (a - b for a, b in pairs if a is not None and b is not None))

    @property
    def sent(self) -> Estimate:
        """MB per epoch."""
        return estimate(map(megabytes, self.runs))

    @property
    def milliseconds(self) -> str:
        """Milliseconds per epoch: wall time, or "CPU" time of the busiest worker where workers outnumbered
        cores."""
        wall = self.first.told["clock"] == "wall"
        seconds = [(run.told if wall else run.told["cpu_slowest"])["epoch_s"] for run in self.runs]
        return f"{1e3 * sum(seconds) / len(seconds):.1f}{'' if wall else ' CPU'}"

    @property
    def ranked(self) -> bool:
        return not self.diverged and self.first.role != "control" and keeps(self.ahead)


def score(run: Submitted) -> float | None:
    """The leading test score (%) of the epoch whose validation score was best."""
    return columns.LEADING[run.told["score"]][0].value(run.told)


def megabytes(run: Submitted) -> float:
    """MB per epoch that a run sends."""
    return columns.ALL["mb_epoch"].value(run.told) or 0.0


def rankings(bundles: Sequence[Bundle]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the kind of graph (of KINDS), track and setting: first the ranked ones, fewest bytes first."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for bundle in bundles:
        track = bundle.head.track
        by_setting: dict[tuple[Any, ...], list[list[Submitted]]] = defaultdict(list)
        for runs in bundle.rows:
            by_setting[runs[0].setting(track)].append(runs)
        for setting, rows in by_setting.items():
            exact = min(
                (runs for runs in rows if runs[0].role == "reference"),
                key=lambda runs: sum(map(megabytes, runs)) / len(runs),
            )
            found[_kind(rows[0][0]), track, setting] += [Row(bundle, runs, exact) for runs in rows]
    order = lambda row: (not row.ranked, row.sent.mean, row.first.name)  # noqa: E731
    by = lambda it: (list(KINDS).index(it[0][0]), it[0][1])  # noqa: E731
    return {key: sorted(rows, key=order) for key, rows in sorted(found.items(), key=by)}


def _kind(run: Submitted) -> str:
    return "own" if run.own_graph else "twin" if run.told["twin"] else "real"


def table(caption: str, rows: Sequence[Row]) -> Table:
    """The rows of a ranking in the order of `rankings`; rows that send equally many bytes share a rank."""
    cells, rank, before = [], 0, None
    for at, (row, label) in enumerate(zip(rows, labels([row.first for row in rows])), 1):
        if row.ranked and row.sent.mean != before:
            rank, before = at, row.sent.mean
        exact = sum(map(megabytes, row.exact)) / len(row.exact)
        words = [
            str(rank) if row.ranked else "",
            label + _beside(row.first),
            row.bundle.head.name,
            "diverged" if row.diverged else f"{row.score:.2f}",
            f"{row.ahead:+.2f}" if row.runs is not row.exact else "",
            f"{row.sent:.3f}",
            f"{row.sent.mean / exact:.3f}" if exact else "",
            row.milliseconds,
            str(len(row.runs)),
            resolved.machine(row.first.environment),
        ]
        cells.append([Cell(word, best=row.ranked and rank == 1) for word in words])
    return Table(caption, HEADINGS, cells)


def _beside(run: Submitted) -> str:
    """What a row's name leaves out: the system of a run that has a label, and that it is the control."""
    system = system_of(run.keys)
    said = [system] * (run.name != system) + ["control"] * (run.role == "control")
    return f" ({', '.join(said)})" if said else ""


def blind(rows: Sequence[Row]) -> bool:
    """Whether a control, which has no remote rows, is not told to score below exact training: the score then
    cannot tell what remote rows are worth."""
    return any(row.first.role == "control" and row.ahead.side() >= 0 for row in rows)


def page(bundles: Sequence[Bundle], command: str) -> str:
    """The page; the same text whenever it is made of the same bundles."""
    parts = []
    for number, ((kind, track, setting), rows) in enumerate(rankings(bundles).items(), 1):
        graph, workers, epochs, keys = setting
        caption = f"{graph}, {workers} workers, {epochs} epochs, {track} track"
        split = dict(keys).get("dataset.split")
        parts.append(
            {
                "id": f"ranking-{number}",
                "kind": kind,
                "heading": caption + (f", split {split}" if split not in (None, "own") else ""),
                "table": table(caption, rows),
                "blind": blind(rows),
                "setting": [f"{key}={value}" for key, value in keys],
            }
        )
    return rendered(
        "ranking.html.j2",
        title="Submissions",
        kinds=KINDS,
        parts=parts,
        bundles=[(each.head, graphs_of(each)) for each in bundles],
        command=command,
    )


def graphs_of(bundle: Bundle) -> str:
    return ", ".join(sorted({graph_name(run) for run in bundle.runs.values()}))
