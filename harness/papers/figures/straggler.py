"""What one slow worker costs each system: wall seconds of an epoch with all workers alike, and with one that
is delayed.

Wall time, since a worker that sleeps takes no CPU seconds. In an asynchronous system an epoch is as many
updates as there are workers.
"""

from matplotlib.figure import Figure

from harness.papers.figures.panels import knob, panels
from harness.results.report.compare import paired
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group
from harness.results.report.style import COLOURS


def added(groups: list[Group]) -> dict[str, tuple[Group, Group, Estimate]]:
    """By system: its runs without and with a straggler, and the wall seconds per epoch that the straggler
    adds, paired over seeds. Only systems that have both kinds of runs, in ascending order of what is added.
    """
    slow = {g.first.name: g for g in groups if knob(g, "straggler.rank") is not None}
    plain = {g.first.name: g for g in groups if knob(g, "straggler.rank") is None}
    found = {
        name: (plain[name], group, paired(group, plain[name], _seconds))
        for name, group in slow.items()
        if name in plain
    }
    return dict(sorted(found.items(), key=lambda pair: pair[1][2].mean))


def draw(groups: list[Group]) -> Figure:
    found = added(groups)
    keys = ("straggler.delay", "straggler.delay_spread")
    delays = sorted({tuple(knob(slow, key) for key in keys) for _, slow, _ in found.values()})
    said = ", ".join(f"{1e3 * least:g} to {1e3 * (least + spread):g} ms" for least, spread in delays)
    figure, axes = panels(
        groups, f"One worker is delayed by {said} per epoch", 1, height=0.6 + 0.3 * len(found)
    )
    ax = axes[0, 0]
    for row, (plain, slow, more) in enumerate(found.values()):
        start, end = (group.estimate(_seconds) for group in (plain, slow))
        ax.plot([start.mean, end.mean], [row, row], color="#999999", linewidth=1.5, zorder=1)
        ax.errorbar(start.mean, row, xerr=start.half, fmt="o", color=COLOURS[0], label="all workers alike")
        ax.errorbar(end.mean, row, xerr=end.half, fmt="D", color=COLOURS[1], label="one is slow")
        ax.annotate(
            f"{1e3 * more.mean:+.0f} ms",
            (max(start.mean, end.mean), row),
            (8, -3),
            textcoords="offset points",
        )
    ax.set_yticks(range(len(found)), list(found))
    ax.margins(x=0.15)
    ax.set_xlabel("wall seconds per epoch")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[:2], labels[:2], frameon=False, loc="lower right")
    return figure


def _seconds(summary: dict) -> float:
    return summary["epoch_s"]
