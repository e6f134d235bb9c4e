"""CDFGNN's Fig. 7: the share of messages that the adaptive cache lets through, by layer and direction, and
its threshold.

From the metrics `sent_*`, `zero_*` and `possible_*` (rows, gather and scatter together) and `epsilon`. Rows
that are 0 are not saved by the cache and stand apart. Runs have the usual dropout or none, since a dropout
mask drawn anew changes nearly every row of a hidden layer by more than the threshold that starts at 0.01. The
threshold has two starts, since the paper does not print its own.
"""

import pandas as pd

from harness.papers.claims.published import entries
from harness.papers.figures.panels import by_epoch, knob, line, panels, series
from harness.results.report.groups import Run

SAID = entries()["cdfgnn_fig7"].published["ogbn_products_epochs_with_almost_no_forward_messages"]
QUIET = 0.05  # a share sent below which almost nothing is


def shares(run: Run, direction: str, name: str = "sent") -> pd.DataFrame:
    """Rows `sent`, `saved` or `zero` of those possible, by epoch (rows) and layer (columns)."""
    return by_epoch(run, f"{name}_{direction}") / by_epoch(run, f"possible_{direction}")


def quiet_epochs(run: Run) -> int:
    """Epochs in which almost nothing is sent forward in the first layer that is synchronised every epoch."""
    return int((shares(run, "forward").iloc[:, 0] < QUIET).sum())


def draw(groups):
    groups = sorted(groups, key=lambda group: (knob(group, "system.epsilon"), -knob(group, "model.dropout")))
    columns = min(2, len(groups))
    what = f"Messages sent, the threshold, and epochs with under {QUIET:.0%} in the first layer forward"
    figure, axes = panels(groups, what, columns, -(-len(groups) // columns), height=3.0, sharex=True,
                          sharey=True)  # fmt: skip
    for at, (group, ax) in enumerate(zip(groups, axes.flat)):
        run = group.first
        setting = f"dropout {knob(group, 'model.dropout'):g}, epsilon from {knob(group, 'system.epsilon'):g}"
        ax.set_title(f"{setting}: {quiet_epochs(run)} epochs under {QUIET:.0%}", fontsize=9, loc="left")
        for direction, stroke in (("forward", "-"), ("backward", "--")):
            for name, drawn in (("sent", stroke), ("zero", ":")):
                share = 100 * shares(run, direction, name)
                for layer in map(int, share.columns[share.any()]):
                    line(ax, share.index, share[layer], f"{name} {direction}, layer {layer}", layer,
                         linestyle=drawn, linewidth=1)  # fmt: skip
        if "ogbn-products" in group.dataset:
            ax.axvspan(*SAID, color="#E8E8E8", zorder=0, label="published: almost no messages forward")
        ax.set_ylim(-2, 102)
        # As in the paper, on an axis of its own.
        threshold = ax.twinx()
        line(threshold, *series(run, "epsilon"), "epsilon", 2)
        threshold.set_ylim(bottom=0)
        threshold.grid(visible=False)
        threshold.spines["right"].set_visible(True)
        if at % columns == columns - 1 or at == len(groups) - 1:
            threshold.set_ylabel("epsilon")
    for ax in axes.flat[len(groups) :]:
        ax.remove()
    for ax in axes.flat[max(0, len(groups) - columns) : len(groups)]:
        ax.set_xlabel("epoch")
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("messages, %")
    lines = {str(each.get_label()): each for ax in figure.axes for each in (*ax.lines, *ax.patches)}
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=4, frameon=False,
                  fontsize=9)  # fmt: skip
    return figure
