"""Figures drawn from short runs on a small graph, for tests of what pages say to draw."""

from harness.papers.claims.experiment import Experiment
from harness.run import runner

TINY = "twin/flickr dataset.scale=0.005 dataset.split=random"
# Of sweeps over many numbers, which only make a line longer, one is drawn.
ONE = ("system.capacity", "system.cache", "system.bound", "optimiser.lr")


def shorten_figures(monkeypatch, place) -> None:
    """Give every experiment rows of twelve epochs, and of sweeps over ONE the first value. `place` starts
    them.
    """
    whole = Experiment.sweep

    def short(self, row: str, size: str, graph: str) -> str:
        words = whole(self, row, size, graph).split()
        words = [word for word in words if not word.startswith(("epochs=", "evaluate.every="))]
        words = [word.split(",")[0] if word.split("=")[0] in ONE else word for word in words]
        return " ".join([*words, "epochs=12", "evaluate.every=4"])

    monkeypatch.setattr(Experiment, "sweep", short)
    monkeypatch.setattr(runner, "start", place.sweep)
