"""What a sweep may optimise: one number of a finished run, by its place in summary.json."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness.base.errors import InputError, did_you_mean
from harness.core.scores import SPLITS

# Of the evaluation with the best validation score, and of the last one: the more the better.
SCORED = ("best", "final")
# The less the better. `bytes_epoch` is the sum of its parts, as tables show it.
COSTS = (
    "loss", "epoch_s", "epoch_median_s", "train_total_s", "comm_s", "exposed_s", "cpu_s", "bytes_epoch",
    "bytes_total", "peak_rss_max", "peak_rss_sum",
)  # fmt: skip


def direction(name: str | None, own: Iterable[str] | None = None) -> str:
    """ "maximize" or "minimize", as Optuna has them, for the value called `name` (null: the best validation
    score).

    own   the run's own scores (`score=NAME`); None: they are not known here
    InputError where there is no such value.
    """
    if name is None:
        return "maximize"
    if name in COSTS:
        return "minimize"
    known = [*SPLITS, *(f"{split}_{score}" for score in ("auc", "balanced") for split in ("val", "test"))]
    known += [f"{split}_{score}" for score in own or () for split in ("val", "test")]
    at, _, score = str(name).partition(".")
    if at in SCORED and (score in known or (own is None and score.startswith(("val_", "test_")))):
        return "maximize"
    values = [*COSTS, *(f"{at}.{score}" for at in SCORED for score in known)]
    raise InputError(f'objective="{name}" is not a value of a run{did_you_mean(str(name), values)}')


def worst(towards: str) -> float:
    """The worst value there is in a direction, "maximize" or "minimize"."""
    return -math.inf if towards == "maximize" else math.inf


def value(summary: Mapping[str, Any], name: str | None) -> float:
    """The value called `name` of a run's summary; of a run that diverged the worst there is, minus infinity
    for a score and infinity for a cost.

    null is the best validation score: AUC where the run is judged by it, else accuracy. InputError where the
    run has no such value."""
    towards = direction(name, summary["scores"])
    if summary["diverged"] is not None:
        return worst(towards)
    name = name or ("best.val" if summary["score"] == "acc" else f"best.val_{summary['score']}")
    at, _, score = name.partition(".")
    found = (summary[at] or {}).get(score) if score else summary[at]
    if isinstance(found, Mapping):
        found = sum(found.values())
    if found is None:
        raise InputError(
            f"objective={name} has no value in this run: nothing was evaluated on such vertices; give another"
            " objective"
        )
    return float(found)
