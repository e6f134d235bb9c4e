"""Figures drawn from short runs on a small graph, for tests of what pages say to draw."""

from __future__ import annotations

from dataclasses import replace

from harness.claims.experiment import FOLDER
from harness.figures import __main__ as figures
from harness.figures.figure import available
from harness.run import runner
from tests.launching import Started

TINY = "twin/flickr dataset.scale=0.005 dataset.split=random"
# Of sweeps over many numbers, which only make a line longer, one is drawn.
ONE = ("system.capacity", "system.cache", "system.bound", "optimiser.lr")


def shorten_figures(monkeypatch, place) -> None:
    """Give every figure rows of twelve epochs, whose runs `place` starts."""

    def start(sweep, there):
        ended = Started(place, ["-m", *sweep.split(), *there.overrides]).end()
        assert ended.code == 0, ended.err

    def short(folder, size, *more):
        return {
            name: replace(figure, rows=lambda graph, rows=figure.rows: _each(rows(graph)))
            for name, figure in available(folder or FOLDER, size, *more).items()
        }

    monkeypatch.setattr(figures, "available", short)
    monkeypatch.setattr(runner, "start", start)


def _each(rows: dict[str, str]) -> dict[str, str]:
    return {row: _shortened(sweep) for row, sweep in rows.items()}


def _shortened(sweep: str) -> str:
    words = [word for word in sweep.split() if not word.startswith(("epochs=", "evaluate.every="))]
    words = [word.split(",")[0] if word.split("=")[0] in ONE else word for word in words]
    return " ".join([*words, "epochs=12", "evaluate.every=4"])
