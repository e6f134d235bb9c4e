"""DistDGL's Fig. 15b by bytes instead of seconds: what workers send per epoch, by purpose and partition.

From the bytes of the trace: features and the ids that ask for them, structure (frontiers and what they draw),
weights, and the rest.
"""

from matplotlib.figure import Figure

from harness.papers.figures.panels import panels
from harness.results.report.groups import Group
from harness.results.report.style import COLOURS

PURPOSES = {"features": ("features", "ids"), "structure": ("sample", "neighbours"), "weights": ("weights",)}


def megabytes(group: Group) -> dict[str, float]:
    """MB per epoch of all workers, means over seeds, by the names of `PURPOSES`; "other" is the rest."""
    found = dict.fromkeys([*PURPOSES, "other"], 0.0)
    for run in group.runs:
        for purpose, parts in run.summary["bytes_epoch_by_purpose"].items():
            name = next((name for name, among in PURPOSES.items() if purpose in among), "other")
            found[name] += sum(parts.values()) / 1e6 / len(group.runs)
    return found


def draw(groups: list[Group]) -> Figure:
    figure, axes = panels(groups, "What is sent per epoch, by purpose", 1, height=0.8 + 0.5 * len(groups))
    ax, begin = axes[0, 0], [0.0] * len(groups)
    found = [megabytes(group) for group in groups]
    for number, name in enumerate(found[0]):
        sizes = [each[name] for each in found]
        if any(sizes):
            ax.barh(range(len(groups)), sizes, left=begin, color=COLOURS[number], label=name, height=0.6)
        begin = [a + b for a, b in zip(begin, sizes)]
    ax.set_yticks(range(len(groups)), [group.label for group in groups])
    ax.invert_yaxis()
    ax.set_xlabel("MB per epoch, all workers")
    ax.legend(frameon=False)
    return figure
