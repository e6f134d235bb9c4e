"""The tree's experiments: read in full, which takes a second, only where a test asks for them, and their
names and sizes as the files have them, for what is collected.
"""

import functools
from typing import Any

import yaml

from harness.papers.claims import evaluate, experiment
from harness.papers.claims.claim import Claim
from harness.papers.claims.verdict import Verdict
from harness.results.report.estimate import Estimate


@functools.cache
def all_of_them() -> dict[str, experiment.Experiment]:
    """Every experiment by its name, checked."""
    return experiment.load(experiment.FOLDER)


@functools.cache
def sizes() -> dict[str, dict[str, Any]]:
    """The sizes of every experiment by its name, as written."""
    files = sorted(experiment.FOLDER.glob("*.yaml"))
    read = {path.stem: yaml.load(path.read_text(), Loader=yaml.CSafeLoader) for path in files}
    return {name: given.get("sizes") or {} for name, given in read.items()}


def result(
    entry: str, says: str, verdict: Verdict, ours: Estimate | None = None, again: str = "", **claim: Any
) -> evaluate.Result:
    """A part of the experiment "x" that has this verdict; `claim`: further fields of its claim."""
    asked = Claim(entry, says, **{"measure": "epoch_s", "rows": ["a"], **claim})
    measured = evaluate.Measured(ours) if ours else None
    return evaluate.Result(asked, "x", verdict, measured, "small" if ours else "", again=again)
