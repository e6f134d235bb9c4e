"""Our value of each claim beside the published one, as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.claims.evaluate import Result
from harness.report.style import COLOURS, STROKES

OURS, PUBLISHED = COLOURS[0], COLOURS[1]


def draw(title: str, results: Sequence[Result], graphs: Sequence[str]) -> Figure | None:
    """A panel per claim of one experiment with a value of ours: a dot with its 95 % interval, the published
    number or range, and no difference as a dotted line. None where nothing has a value.
    """
    # What a figure and a claim of a paper say alike is drawn once.
    known = list({result.says: result for result in results if result.ours is not None}.values())
    if not known:
        return None
    figure = Figure(figsize=(9.6, 1.0 + 0.95 * len(known)), layout="constrained")
    where = "; ".join(graphs)
    twins = " (twins: synthetic graphs)" if any(graph.startswith("twin/") for graph in graphs) else ""
    seeds = max(result.ours.n for result in known if result.ours is not None)
    below = f"{where}{twins}; {seeds} {'seeds, 95 % intervals' if seeds > 1 else 'seed'}"
    figure.suptitle(f"{title}\n{textwrap.fill(below, 110)}", x=0.01, ha="left", fontsize=10)
    for ax, result in zip(figure.subplots(len(known), squeeze=False)[:, 0], known):
        _panel(ax, result)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for ax in figure.axes[1:]:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(handles, labels, loc="outside lower right", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(ax: Axes, result: Result) -> None:
    ours, said = result.ours, result.published
    assert ours is not None
    if said is not None:
        low, high = (said[0], said[-1]) if isinstance(said, list) else (said, said)
        if low == high:
            ax.plot([low], [0], "D", color=PUBLISHED, markersize=7, label="published")
        else:
            ax.axvspan(low, high, color=PUBLISHED, alpha=0.25, label="published")
    if result.neutral is not None:
        ax.axvline(result.neutral, color="#666666", linestyle=STROKES[1], linewidth=1, label="no difference")
    ax.errorbar(
        [ours.mean], [0], xerr=[ours.half or 0], fmt="o", color=OURS, capsize=4, markersize=6, label="here"
    )
    ax.set_yticks([])
    ax.set_ylim(-1, 1)
    # At least a tenth of our value to both sides, by which a published one may be off.
    near = [ours.mean - 0.1 * abs(ours.mean), ours.mean + 0.1 * abs(ours.mean)]
    ax.update_datalim([(x, 0) for x in near])
    ax.autoscale_view()
    ax.margins(x=0.15)
    ax.ticklabel_format(axis="x", useOffset=False)
    ax.set_title(f"{result.verdict.word}: {result.says}", loc="left", fontsize=9)
    ax.grid(visible=False, axis="y")
