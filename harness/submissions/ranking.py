"""The page that ranks what was handed in: per graph, setting and track a table of all bundles' rows.

A row keeps the score where its difference to exact training of its own bundle, paired over two seeds or more,
has a mean of at most one point below 0 and an interval that is not all below 0
(`harness.results.report.advice`). Of the rows that keep it, the one that sends the fewest bytes is first.
Rows that lose score, the control and rows that diverged have no rank."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from harness.base.terminal import counted
from harness.cli.page.layout import Cell, Table, rendered
from harness.results import resolved
from harness.results.report import columns
from harness.results.report.advice import keeps
from harness.results.report.columns import Column
from harness.results.report.compare import labels, paired
from harness.results.report.estimate import Estimate, estimate
from harness.results.report.groups import Group
from harness.results.report.table import competes, estimate_of
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
    """A row of a bundle, and exact training of the same bundle at the same setting: of several such rows the
    one that sends the fewest bytes."""

    bundle: Bundle
    group: Group
    exact: Group

    @property
    def first(self) -> Submitted:
        return cast(Submitted, self.group.first)

    @property
    def score(self) -> Column:
        return columns.LEADING[self.first.summary["score"]][0]

    @property
    def ahead(self) -> Estimate:
        """Its score minus that of exact training, in points, paired over seeds, without those in which exact
        training diverged. No estimate where a run of its own diverged."""
        return estimate([]) if self.group.diverged else paired(self.group, self.exact, self.score.value)

    @property
    def ranked(self) -> bool:
        return competes(self.group) and keeps(self.ahead)


def megabytes(group: Group) -> float:
    """MB per epoch that the runs of a row send, in the mean."""
    return estimate_of(group, columns.ALL["mb_epoch"]).mean


def rankings(bundles: Sequence[Bundle]) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by the kind of graph (of KINDS), track and setting: first the ranked ones, fewest bytes first."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for bundle in bundles:
        track = bundle.head.track
        for setting, rows in bundle.by_setting.items():
            exact = min((row for row in rows if row.first.role == "reference"), key=megabytes)
            found[_kind(cast(Submitted, exact.first)), track, setting] += [
                Row(bundle, row, exact) for row in rows
            ]
    order = lambda row: (not row.ranked, megabytes(row.group), row.first.name)  # noqa: E731
    by = lambda it: (list(KINDS).index(it[0][0]), it[0][1])  # noqa: E731
    return {key: sorted(rows, key=order) for key, rows in sorted(found.items(), key=by)}


def _kind(run: Submitted) -> str:
    return "own" if run.own_graph else "twin" if run.summary["twin"] else "real"


def table(caption: str, rows: Sequence[Row]) -> Table:
    """The rows of a ranking in the order of `rankings`; rows that send equally many bytes share a rank."""
    cells, rank, before = [], 0, None
    for at, (row, label) in enumerate(zip(rows, labels([row.first for row in rows])), 1):
        sent, exact = megabytes(row.group), megabytes(row.exact)
        if row.ranked and sent != before:
            rank, before = at, sent
        words = [
            str(rank) if row.ranked else "",
            label + _beside(row.first),
            row.bundle.head.name,
            "diverged" if row.group.diverged else f"{estimate_of(row.group, row.score):.2f}",
            f"{row.ahead:+.2f}" if row.group is not row.exact else "",
            f"{estimate_of(row.group, columns.ALL['mb_epoch']):.3f}",
            f"{sent / exact:.3f}" if exact else "",
            _milliseconds(row.group),
            str(len(row.group.runs)),
            resolved.machine(row.first.trace.environment),
        ]
        cells.append([Cell(word, best=row.ranked and rank == 1) for word in words])
    return Table(caption, HEADINGS, cells)


def _milliseconds(group: Group) -> str:
    """Milliseconds per epoch: wall time, or, where workers outnumber cores, "CPU" time of the busiest one."""
    seconds = estimate_of(group, columns.TIMES[group.clock][0]).mean
    return f"{1e3 * seconds:.1f}{'' if group.clock == 'wall' else ' CPU'}"


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
        size = f"{counted(workers, 'worker')}, {counted(epochs, 'epoch')}"
        caption = f"{graph}, {size}, {track} track"
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
    return ", ".join(sorted({graph_name(run.trace) for run in bundle.runs.values()}))
