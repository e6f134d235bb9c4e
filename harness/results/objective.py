"""What a sweep may optimise: one number of a finished run, by its place in summary.json."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from harness.base.errors import InputError, did_you_mean
from harness.core.scores import SPLITS

# The evaluation with the best validation score, and the last one. Of their scores higher is better.
SCORED = ("best", "final")
# Values of which lower is better. `bytes_epoch` is the sum of its parts, as tables show it.
COSTS = (
    "loss", "epoch_s", "epoch_median_s", "train_total_s", "comm_s", "exposed_s", "cpu_s", "bytes_epoch",
    "bytes_total", "peak_rss_max", "peak_rss_sum",
)  # fmt: skip


def direction(name: str | None, own: Iterable[str] | None = None) -> str:
    """Which way the value called `name` improves: "maximize" or "minimize", as Optuna spells them.

    name   a value of summary.json, as "best.val" or "epoch_s"; None: the best validation score
    own    the run's own scores (`score=NAME`); None: they are not known here

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
    """The value called `name` of a run's summary. A run that diverged has the worst value there is: minus
    infinity for a score, infinity for a cost.

    Without a name it is the best validation score: AUC where the run is judged by AUC, else accuracy.
    InputError where the run has no such value."""
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
