"""SANCUS's Fig. 24: the epochs in which each worker's block of a hidden layer was broadcast, by staleness rule.

From the metric `active` (1: broadcast, 0: the cached block was used again) of layer 1.
"""

from harness.figures.panels import knob, panels

TITLE = "SANCUS, Fig. 24: which epochs broadcast, by staleness rule"
GRAPHS = [["amazon-photo dataset.split=low_label", "twin/reddit dataset.scale=0.02"]]
RULES = {"epoch_fixed": "SCS-E", "epoch_adaptive": "SCS-A", "variation_gap": "SCS-H"}


def sweeps(graph: str) -> list[str]:
    how = f"dataset={graph} partition=random gpus=4 epochs=100 seed=1 evaluate.every=2"
    return [f"system=sancus system.features=once system.staleness=epoch_fixed,epoch_adaptive system.bound=2 {how}",
            f"system=sancus system.features=once system.staleness=variation_gap system.bound=0.02,0.1 {how}"]  # fmt: skip


def draw(groups):
    figure, axes = panels(groups, "Which blocks of layer 1 were broadcast", 1, len(groups), height=1.15, sharex=True)
    for ax, group in zip(axes[:, 0], groups):
        metrics = group.first.trace.metrics
        active = metrics[(metrics["name"] == "active") & (metrics["layer"] == 1)].pivot(index="worker", columns="epoch", values="value")
        ax.imshow(active, aspect="auto", cmap="Blues", vmin=0, vmax=1.3, interpolation="nearest")
        ax.set_title(f"{RULES[knob(group, 'system.staleness')]}, bound {knob(group, 'system.bound'):g}: "
                     f"{active.to_numpy().mean():.0%} of broadcasts made", fontsize=9.5, loc="left")  # fmt: skip
        ax.set_yticks(range(len(active)))
        ax.set_ylabel("worker")
        ax.grid(visible=False)
    ax.set_xlabel("epoch")
    return figure
