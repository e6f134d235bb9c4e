"""Printed seconds beside those that a replay predicts: a table, and a picture per paper.

They come from the claims that are `compared` (`harness.papers.claims.claim`): each has a printed value and
ours, and is judged by no rule. A claim whose words hold `fit=printed` is a prediction of the calibrated
model, unless its row is the one that the cluster is fitted to. All other claims are predictions of the model
without calibration.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from harness.papers.claims import published
from harness.papers.claims.evaluate import COMPARED, Result
from harness.results.report.style import COLOURS

FITTED, CALIBRATED, BEFORE = "fitted", "calibrated", "not calibrated"
COLUMNS = ("paper", "entry", "says", "row", "model", "printed", "predicted")
SHOWN = {CALIBRATED: ("o", COLOURS[0]), BEFORE: ("s", COLOURS[1]), FITTED: ("D", COLOURS[6])}


def table(results: Sequence[Result]) -> pd.DataFrame:
    """A row per printed number of seconds that has a prediction.

    row     of the paper's table
    model   "fitted" (the row that the cluster is fitted to), "calibrated" or "not calibrated"
    """
    rows = []
    for result in results:
        claim = result.claim
        # Ratios and bytes that are compared are no seconds.
        if result.verdict.word != COMPARED or result.ours is None or claim.compare != "value":
            continue
        model = CALIBRATED if "fit=printed" in repr(claim.measure) else BEFORE
        if model == CALIBRATED and claim.by_construction:
            model = FITTED
        paper = published.entry(result.entry).paper
        row = claim.row or claim.rows[0]
        rows.append((paper, result.entry, result.says, row, model, claim.published, result.ours.mean))
    return pd.DataFrame(rows, columns=COLUMNS)


def errors(seconds: pd.DataFrame) -> dict[str, float]:
    """By model the median of |log(predicted / printed)|, without the rows that a cluster is fitted to."""
    fitted = set(seconds.loc[seconds["model"] == FITTED, "row"])
    rest = seconds[~seconds["row"].isin(fitted)]
    off = (rest["predicted"] / rest["printed"]).map(math.log).abs()
    return {str(model): float(each.median()) for model, each in off.groupby(rest["model"])}


def draw(seconds: pd.DataFrame, title: str) -> Figure:
    """Predicted over printed seconds, or percent of an epoch, of one paper: a place on the x axis per row of
    its tables, a dot per printed number, with the median as a bar."""
    rows = list(dict.fromkeys(seconds["row"]))
    figure = Figure(figsize=(max(7.5, 1.3 + 1.1 * len(rows)), 4.2), layout="constrained")
    ax = figure.subplots()
    off = errors(seconds)
    draws = np.random.default_rng(0)
    for model, (marker, colour) in SHOWN.items():
        known = seconds[seconds["model"] == model]
        if known.empty:
            continue
        side = {CALIBRATED: 0.2, BEFORE: -0.2}.get(model, 0.0)
        places = np.array([rows.index(row) for row in known["row"]]) + side
        spread = draws.uniform(-0.12, 0.12, len(known))
        said = f"{model}: median |log| {off[model]:.2f}" if model in off else f"{model}: the row of the fit"
        ax.plot(
            places + spread, known["predicted"] / known["printed"], marker, color=colour, markersize=4,
            alpha=0.5, markeredgewidth=0, label=said,
        )  # fmt: skip
        for row, own in known.groupby("row"):
            median = float((own["predicted"] / own["printed"]).median())
            at = rows.index(str(row)) + side
            ax.plot([at - 0.17, at + 0.17], [median, median], color=colour, linewidth=2)
    ax.axhline(1, color="#666666", linewidth=1)
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, 0.45), max(high, 2.2))
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xticks(range(len(rows)), rows, rotation=20 if len(rows) > 5 else 0)
    ax.set_ylabel("predicted / printed")
    ax.set_title(title, loc="left", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure
