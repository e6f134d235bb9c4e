"""PSC-GCN's Fig. 8: hit rate of the feature cache by policy and size, and what layer 0 then sends.

From the metric `hit_rate` and the bytes of layer 0, both after the first renewal, when `inclusion` knows
its probabilities. Layer 0 is fetched anew in every epoch (`features=refetch`): fetched once, it leaves
nothing to cache.
"""

from harness.papers.figures.panels import by_epoch, knob, line, panels

POLICIES = ("inclusion", "degree", "random")
SIZES = (0.1, 0.2, 0.3, 0.5)
RENEWED = 10


def draw(groups):
    figure, axes = panels(groups, "Boundary features found in the cache", 2, height=3.8)
    for p, policy in enumerate(POLICIES):
        mine = sorted(
            (g for g in groups if knob(g, "system.policy") == policy), key=lambda g: knob(g, "system.cache")
        )
        sizes = [100 * knob(g, "system.cache") for g in mine]
        rates = [100 * by_epoch(g.first, "hit_rate", "mean").loc[RENEWED:].to_numpy().mean() for g in mine]
        line(axes[0, 0], sizes, rates, policy, p, marker="o", markersize=4)
        line(axes[0, 1], sizes, [sent(g.first.trace.comm) for g in mine], policy, p, marker="o", markersize=4)
    for ax in axes[0]:
        ax.set_xlabel("cache, % of boundary vertices")
        ax.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("hit rate, %")
    axes[0, 1].set_ylabel("layer 0, MB per epoch")
    axes[0, 0].legend(frameon=False)
    return figure


def sent(comm) -> float:
    """Megabytes per epoch of layer 0 by all workers, past the first renewal."""
    later = comm[(comm["epoch"] > RENEWED) & (comm["layer"] == 0) & (comm["epoch"] % RENEWED != 0)]
    return later["bytes"].sum() / 1e6 / later["epoch"].nunique() if len(later) else 0.0
