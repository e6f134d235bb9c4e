"""SANCUS's Fig. 24: the epochs in which each method broadcasts, a row per method with its bound.

From the metric `active` (1: broadcast, 0: the cached block was used again) of layer 1: a dot per epoch in
which a worker broadcast its block of that layer, its area the share of the workers that did. The paper's
caption prints eps_E = {1, 2} for SCS-E1 and SCS-E3; they are 1 and 3 here, as in its Fig. 21.
"""

from harness.papers.figures.panels import by_epoch, knob, panels
from harness.results.report.style import COLOURS

# The letter of each rule, and how many of its bound's unit the paper counts as 1.
RULES = {"epoch_fixed": ("E", 1), "epoch_adaptive": ("A", 1), "variation_gap": ("H", 0.01)}
AREA = 26  # of the dot of an epoch in which all workers broadcast, square points


def draw(groups):
    rules = list(RULES)
    methods = sorted((rules.index(knob(group, "system.staleness")), knob(group, "system.bound"), i)
                     for i, group in enumerate(groups))  # fmt: skip
    figure, ((ax,),) = panels(groups, "Epochs in which blocks of layer 1 were broadcast", 1,
                              height=0.9 + 0.3 * len(groups))  # fmt: skip
    names = []
    for row, (rule, bound, i) in enumerate(methods):
        share = by_epoch(groups[i].first, "active", "mean")[1]  # of the workers, by epoch
        made = share[share > 0]
        ax.scatter(made.index, [row] * len(made), s=AREA * made, color=COLOURS[rule], linewidths=0)
        letter, unit = RULES[rules[rule]]
        names.append(f"SCS-{letter}{bound / unit:.0f}, eps = {bound:g}: {share.mean():.0%}")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlabel("epoch")
    ax.grid(visible=False, axis="y")
    ax.set_title("%: broadcasts made of those possible; a dot's area: share of the workers that broadcast",
                 fontsize=9, loc="left")  # fmt: skip
    return figure
