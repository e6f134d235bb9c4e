"""What `halobench advise --html` writes: the advice as a page of one file."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from harness.page import svg
from harness.page.layout import Cell, Picture, Table, rendered
from harness.plan.candidate import HEADINGS, Candidate
from harness.report.style import PARTS, STYLE

WORDS = (0, len(HEADINGS) - 1)  # columns that are sorted as text


def made(
    found: Sequence[Candidate],
    exact: Candidate,
    rows: Sequence[Sequence[str]],
    said: Sequence[str],
    command: str,
) -> str:
    """The page.

    rows      a row per system, as the command prints them
    said      the answer, its reasons, and the command of the winner
    command   what makes the page again
    """
    assert exact.plan is not None
    run, cluster = exact.plan.run, exact.plan.cluster
    answer, *reasons, winner = said
    named = [name or "remark" for name in HEADINGS]
    table = Table(
        "Every system of conf/system, by its modelled epoch",
        [(heading, number in WORDS, "") for number, heading in enumerate(named)],
        [[Cell(text, best=winner.startswith(f"halobench run system={row[0]} ") and not number)
          for number, text in enumerate(row)] for row in rows],
    )  # fmt: skip
    trained = [each for each in found if each.best is not None]
    return rendered(
        "advice.html.j2",
        title=f"{run.dataset.label} on {cluster.name}",
        workers=run.settings.workers,
        fits=exact.plan.fits,
        answer=answer[0].upper() + answer[1:],
        reasons=reasons,
        winner=winner,
        picture=_epochs(found),
        table=table,
        notes=exact.plan.notes,
        commands=[(each.name, f"halobench run {' '.join(each.words)}") for each in trained],
        command=command,
    )


def _epochs(found: Sequence[Candidate]) -> Picture:
    """Where each system's modelled epoch goes: the slowest worker's."""
    planned = [each for each in found if each.plan is not None and each.plan.seconds]
    slowest = []
    for each in planned:
        assert each.plan is not None
        times = max(each.plan.seconds, key=lambda times: times.epoch)
        slowest.append(max(times.workers, key=lambda own: own.epoch))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.9 + 0.3 * len(planned)), layout="constrained")
        axes = figure.subplots()
        places, left = range(len(planned)), [0.0] * len(planned)
        waits = [1e3 * (own.exposed + own.idle) for own in slowest]
        for name, part, values in (
            ("compute", "compute", [1e3 * own.compute for own in slowest]),
            ("waiting for messages", "comm", waits),
        ):
            axes.barh(places, values, left=left, color=PARTS[part], label=name)
            left = [a + b for a, b in zip(left, values)]
        axes.set_yticks(places, [each.name for each in planned])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ms per epoch, modelled")
        axes.legend(loc="upper right", frameon=False)
        says = "Where the slowest worker's modelled epoch goes, at its most bytes, for each system"
        return svg.element(figure, "epochs", says), says, []
