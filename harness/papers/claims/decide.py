"""The verdicts on all claims over the runs in a folder; it starts none."""

from __future__ import annotations

from pathlib import Path

from harness.papers.claims import evaluate, experiment, reference
from harness.run import runner
from harness.run.runner import Places


def decided(own: Path | None, places: Places, kept: Path | None = None) -> list[evaluate.Result]:
    """The results of all experiments over the runs in `places`: first those of a folder of one's own, which
    also take the place of the tree's of the same name.

    kept   a folder whose verdicts stand in where runs are not there (`harness.papers.claims.reference`)
    """
    experiments = experiment.load(own) if own else {}
    for name, plan in experiment.load(experiment.FOLDER).items():
        experiments.setdefault(name, plan)
    graphs: dict[str, list[Path]] = {}

    # Composing a run takes a tenth of a second, so one tells for each graph whether it has any. Its folder
    # goes by the graph's name, whatever else the sweep asks of it.
    def folders(sweep: str) -> list[Path]:
        if not places.results.is_dir():
            return [places.results / "none"]
        graph = " ".join(w for w in sweep.split() if w.startswith(("dataset=", "dataset.path=")))
        if graph not in graphs:
            graphs[graph] = [run.directory.parent for run in runner.composed(runner.expand(graph), places)]
        there = graphs[graph]
        return runner.folders(sweep, places) if any(map(Path.is_dir, there)) else [there[0] / "none"]

    found = evaluate.results(experiments, folders)
    return reference.with_kept(found, kept, experiments) if kept is not None else found
