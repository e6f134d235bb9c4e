"""What `halobench advise --html` writes: the advice as a page of one file."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
from matplotlib.figure import Figure

from harness.cli.page import svg
from harness.cli.page.layout import Cell, Picture, Table, rendered
from harness.model.plan.candidate import HEADINGS, Candidate
from harness.results.report.style import PARTS, STYLE

WORDS = (0, len(HEADINGS) - 1)  # columns that are sorted as text


def made(
    found: Sequence[Candidate],
    exact: Candidate,
    rows: Sequence[Sequence[str]],
    said: Sequence[str],
    winner: Candidate | None,
    again: str,
) -> str:
    """The page.

    rows    a row per system, as the command prints them
    said    the answer, and its reasons
    winner  whose command is shown; None: nobody
    again   the command that makes the page again
    """
    assert exact.plan is not None
    run, cluster = exact.plan.run, exact.plan.cluster
    answer, *reasons = said
    named = [name or "remark" for name in HEADINGS]
    table = Table(
        "Every system of conf/system, in the order of its probe, then of its modelled optimiser step",
        [(heading, number in WORDS, "") for number, heading in enumerate(named)],
        [[Cell(text, best=each is winner and not number) for number, text in enumerate(row)]
         for each, row in zip(found, rows)],
    )  # fmt: skip
    ran = ["systems that were run here: the seconds of their traces, replayed on the cluster"]
    ran = ran if exact.trial is not None else []
    trained = [each for each in found if each.best is not None]
    return rendered(
        "advice.html.j2",
        title=f"{run.dataset.label} on {cluster.name}",
        workers=run.settings.workers,
        fits=exact.plan.fits,
        answer=answer[0].upper() + answer[1:],
        reasons=reasons,
        winner=None if winner is None else winner.command,
        picture=_epochs(found),
        table=table,
        notes=[*ran, *exact.plan.notes],
        commands=[(each.name, each.command) for each in trained],
        command=again,
    )


def _epochs(found: Sequence[Candidate]) -> Picture:
    """Where each system's modelled epoch goes: the slowest worker's."""
    known = [(each.name, each.times) for each in found if each.times is not None]
    slowest = [max(times.workers, key=lambda own: own.epoch) for _, times in known]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.9 + 0.3 * len(known)), layout="constrained")
        axes = figure.subplots()
        places, left = range(len(known)), [0.0] * len(known)
        waits = [1e3 * (own.exposed + own.idle) for own in slowest]
        for name, part, values in (
            ("compute", "compute", [1e3 * own.compute for own in slowest]),
            ("codes, caches, bookkeeping", "rest", [1e3 * own.rest for own in slowest]),
            ("waiting for messages", "comm", waits),
        ):
            axes.barh(places, values, left=left, color=PARTS[part], label=name)
            left = [a + b for a, b in zip(left, values)]
        axes.set_yticks(places, [name for name, _ in known])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ms per epoch, modelled")
        axes.legend(loc="upper right", frameon=False)
        says = "Where the slowest worker's modelled epoch goes, for each system"
        return svg.element(figure, "epochs", says), says, []
