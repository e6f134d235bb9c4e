"""Tables of results: one run for the launcher, many runs side by side for a person, a paper or a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.report.groups import Group, Run
from harness.trace.summary import PARTS

CLOCKS = {
    "wall": "wall seconds of each epoch's slowest worker",
    "cpu": "CPU seconds of each epoch's busiest worker (workers outnumber cores: wall time would measure the machine)",
}


@dataclass(frozen=True)
class Figure:
    """One measured column: its heading, its key in a CSV, its value in a run's summary, and digits."""

    heading: str
    key: str
    value: Callable[[dict[str, Any]], float | None]
    digits: str


def _accuracy(s: dict[str, Any]) -> float | None:
    return 100 * s["best"]["test"] if s["best"] and s["best"]["test"] is not None else None


def _communication_cpu(s: dict[str, Any]) -> float:
    return s["cpu_slowest"]["wait_s"] + s["cpu_slowest"]["other_threads_s"]


def _megabytes(part: str) -> Callable[[dict[str, Any]], float]:
    return lambda s: s["bytes_epoch"][part] / 1e6


ACCURACY = Figure("test acc %", "test_acc_percent", _accuracy, ".2f")
TIMES = {
    "wall": (
        Figure("epoch s", "epoch_s", lambda s: s["epoch_s"], ".4f"),
        Figure("compute s", "compute_s", lambda s: s["compute_s"], ".4f"),
        Figure("exposed comm s", "exposed_s", lambda s: s["exposed_s"], ".4f"),
        Figure("rest s", "rest_s", lambda s: s["rest_s"], ".4f"),
    ),
    "cpu": (
        Figure("epoch CPU s", "epoch_cpu_s", lambda s: s["cpu_slowest"]["epoch_s"], ".4f"),
        Figure("compute CPU s", "compute_cpu_s", lambda s: s["cpu_slowest"]["compute_s"], ".4f"),
        Figure("comm CPU s", "comm_cpu_s", _communication_cpu, ".4f"),
        Figure("rest CPU s", "rest_cpu_s", lambda s: s["cpu_slowest"]["rest_s"], ".4f"),
    ),
}
EXPOSED = Figure("exposed wall s", "exposed_s", lambda s: s["exposed_s"], ".4f")
CPU = Figure("CPU s all workers", "cpu_s_all_workers", lambda s: s["cpu_s"], ".4f")
BYTES = (
    *(Figure(f"MB {part.replace('_', ' ')}", f"mb_epoch_{part}", _megabytes(part), ".3f") for part in PARTS),
    Figure("MB an epoch", "mb_epoch", lambda s: sum(s["bytes_epoch"].values()) / 1e6, ".3f"),
    Figure("MB the run", "mb_run", lambda s: s["bytes_total"] / 1e6, ".1f"),
)


def figures(clock: str) -> tuple[Figure, ...]:
    # Where CPU seconds are shown, what was waited for on the wall stands beside: no CPU figure shows it.
    return (ACCURACY, *TIMES[clock], *([EXPOSED] if clock == "cpu" else []), CPU, *BYTES)


def sections(groups: list[Group]) -> dict[tuple[str, str, str], list[Group]]:
    """Groups by (dataset, clock, machine): what stands in one table was measured on one graph with one clock."""
    parts: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        parts.setdefault((group.dataset, group.clock, group.first.machine), []).append(group)
    return parts


def title(dataset: str, machine: str) -> str:
    return f"{dataset}{' (twin: a synthetic graph)' if dataset.startswith('twin/') else ''}; {machine}"


def notes(clock: str, groups: list[Group]) -> list[str]:
    said = [
        f"Times are {CLOCKS[clock]}, means over epochs without the first.",
        "Accuracy is the test accuracy at the best validation accuracy; MB (10^6 bytes) are summed over workers.",
    ]
    if any(run.summary["rounds"] for group in groups for run in group.runs):
        said.append(
            "An epoch of an asynchronous run is as many updates as there are workers: its times are "
            "a worker's whole time over the number of epochs."
        )
    if any(len(group.seeds) > 1 for group in groups):
        said.append("± is half a 95 % interval over seeds (Student's t).")
    revisions = sorted({str(run.trace.environment.get("revision")) for group in groups for run in group.runs})
    if len(revisions) > 1:
        said.append(f"Runs come from different revisions: {', '.join(revisions)}.")
    busy = sum(any("other programs" in note for note in run.summary["notes"]) for group in groups for run in group.runs)
    if busy:
        said.append(f"In {busy} runs other programs took a share of the cores: their wall times are too long.")
    if not all(group.finished for group in groups):
        said.append("Unfinished runs stand in rows of their own; their figures are of what they have traced so far.")
    return said


def cells(clock: str, groups: list[Group]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of one section, as text."""
    shown = figures(clock)
    headings = ["system", "workers", "partition", "epochs", "seeds", *(figure.heading for figure in shown)]
    rows = [
        [
            g.label if g.finished else f"{g.label} (unfinished)",
            str(g.workers),
            g.partition,
            g.epochs,
            str(len(g.seeds)),
            *(format(g.estimate(figure.value), figure.digits) for figure in shown),
        ]
        for g in groups
    ]
    return headings, rows


def rich_tables(groups: list[Group], width: int) -> list[RenderableType]:
    """For a terminal of `width` columns: what all rows share goes into the title, and bytes into a table of their own
    where one table would be too wide."""
    shown: list[RenderableType] = []
    for (dataset, clock, machine), members in sections(groups).items():
        headings, rows = cells(clock, members)
        shared = {i for i in (1, 2, 3, 4) if len({row[i] for row in rows}) == 1}
        said = ", ".join(f"{rows[0][i]} {headings[i]}" if i != 2 else rows[0][i] for i in sorted(shared))
        first = [i for i in range(len(headings)) if i not in shared]
        bytes_from = len(headings) - len(BYTES)
        tables = [_rich(members, headings, rows, first)]
        if Measurement.get(Console(width=10_000), Console(width=10_000).options, tables[0]).maximum > width:
            apart = [[i for i in first if i < bytes_from], [0, *range(bytes_from, len(headings))]]
            tables = [_rich(members, headings, rows, columns) for columns in apart]
        tables[0].title = "\n".join(filter(None, [title(dataset, machine), said]))
        shown += [*tables, *(Text(note, style="dim") for note in notes(clock, members)), Text()]
    return shown


def _rich(groups: list[Group], headings: list[str], rows: list[list[str]], columns: list[int]) -> Table:
    table = Table(title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for i in columns:
        # Where it is still too wide, names are folded and figures never.
        table.add_column(
            headings[i].replace(" ", "\n"), justify=_justify(i), vertical="top", no_wrap=i > 0, overflow="fold"
        )
    for group, row in zip(groups, rows):
        # A knob a line, and an interval below its mean.
        table.add_row(
            *(row[i].replace(" ", "\n  ") if i == 0 else row[i].replace(" ± ", "\n± ") for i in columns),
            style=None if group.finished else "yellow",
        )
    return table


def _justify(column: int) -> Literal["left", "right"]:
    return "left" if column in (0, 2) else "right"  # names to the left, figures to the right


def plain(groups: list[Group]) -> str:
    """Aligned text without a width limit, for files and pipes."""
    parts = []
    for (dataset, clock, machine), members in sections(groups).items():
        headings, rows = cells(clock, members)
        widths = [max(map(len, column)) for column in zip(headings, *rows)]
        lines = [
            "  ".join(_pad(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in [headings, *rows]
        ]
        parts.append("\n".join([title(dataset, machine), *lines, *notes(clock, members)]))
    return "\n\n".join(parts)


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if _justify(column) == "left" else cell.rjust(width)


def markdown(groups: list[Group]) -> str:
    parts = []
    for (dataset, clock, machine), members in sections(groups).items():
        headings, rows = cells(clock, members)
        rule = [":--" if _justify(i) == "left" else "--:" for i in range(len(headings))]
        lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [headings, rule, *rows]]
        parts.append("\n".join([f"**{title(dataset, machine)}**", "", *lines, "", *notes(clock, members)]))
    return "\n\n".join(parts)


def write_csv(groups: list[Group], path: Path | str) -> None:
    """One row a group, full precision. A column belongs to one clock and is empty in rows of the other; `_half95` is
    half the 95 % interval, empty with one seed."""
    measured = list(dict.fromkeys((*figures("wall"), *figures("cpu"))))
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(
        [
            "dataset",
            "twin",
            "system",
            "workers",
            "partition",
            "epochs",
            "finished",
            "seeds",
            "runs",
            "clock",
            "machine",
            *(f"{figure.key}{end}" for figure in measured for end in ("", "_half95")),
        ]
    )
    for g in groups:
        row = [
            g.dataset,
            g.first.summary["twin"],
            g.label,
            g.workers,
            g.partition,
            g.first.summary["epochs"],
            g.finished,
            len(g.seeds),
            len(g.runs),
            g.clock,
            g.first.machine,
        ]
        own = figures(g.clock)
        for figure in measured:
            e = g.estimate(figure.value) if figure in own else None
            row += ["", ""] if e is None or not e.n else [repr(e.mean), "" if e.half is None else repr(e.half)]
        out.writerow(row)
    Path(path).write_text(text.getvalue())


def run_table(run_dir: Path | str) -> RenderableType:
    """One run, for the launcher: accuracy, where an epoch's time goes, bytes by layer and purpose, peak memory."""
    run = Run(Path(run_dir))
    s, group = run.summary, Group([run])
    seed = f", seed {run.seed}" if run.seed is not None else ""
    heading = (
        f"{run.name} on {s['dataset']}{' (twin)' if s['twin'] else ''}, {s['workers']} workers, {group.partition}{seed}"
    )
    grid = Table(
        title=heading, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2, 0, 0)
    )
    grid.add_column(style="dim")
    grid.add_column()
    if not run.finished:
        grid.add_row("epochs", group.epochs)
    if s["best"]:
        grid.add_row(
            "test accuracy",
            f"{_percent(s['best']['test'])} at the best validation ({_percent(s['best']['val'])}, epoch "
            f"{s['best']['epoch']}); {_percent(s['final']['test'])} at the last epoch ({s['final']['epoch']})",
        )
    if s["clock"] == "wall":
        grid.add_row(
            "epoch",
            f"{s['epoch_s']:.4f} s = "
            + _shares(s, s["epoch_s"], "s", compute_s="compute", exposed_s="exposed communication", rest_s="rest"),
        )
    else:
        cpu = s["cpu_slowest"]
        grid.add_row(
            "epoch",
            f"{cpu['epoch_s']:.4f} CPU s of the busiest worker = "
            + _shares(
                cpu,
                cpu["epoch_s"],
                "CPU s",
                compute_s="compute",
                wait_s="waiting",
                rest_s="rest",
                other_threads_s="other threads",
            ),
        )
    grid.add_row(
        "all workers",
        f"{s['cpu_s']:.4f} CPU s an epoch; peak memory {s['peak_rss_sum'] / 2**30:.2f} GiB, "
        f"largest {s['peak_rss_max'] / 2**30:.2f} GiB",
    )
    grid.add_row(
        "sent",
        f"{s['bytes_total'] / 1e6:.1f} MB in all, {s['bytes_first_epoch'] / 1e6:.1f} MB of it in the first epoch",
    )
    for note in s["notes"]:
        grid.add_row("note", note)
    sent = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    sent.add_column("MB sent an epoch", style="dim")
    for part in (*PARTS, "sum"):
        sent.add_column(part.replace("_", " "), justify="right")
    for purpose, by_part in {**s["bytes_epoch_by_purpose"], "sum": s["bytes_epoch"]}.items():
        sent.add_row(purpose, *(f"{by_part[part] / 1e6:.3f}" for part in PARTS), f"{sum(by_part.values()) / 1e6:.3f}")
    return Lines(grid, sent)


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f} %"


def _shares(values: dict[str, float], whole: float, unit: str, **names: str) -> str:
    return " + ".join(
        f"{values[key]:.4f} {unit} {name} ({100 * values[key] / whole:.0f} %)" for key, name in names.items()
    )
