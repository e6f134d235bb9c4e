"""CaPGNN's Fig. 15: hit rate of the two tiers by policy and capacity; JACA with exclusive tiers beside.

From the metrics `local_hits`, `global_hits` and `lookups`, added up over all layers and workers and over one
period of refreshes (epoch 0 is left out). A hit is a lookup whose row was used as a tier held it. Two rates,
since the paper does not say how it counts a refresh, in which every row of a layer is computed anew:

    between refreshes   hits over lookups, the lookups of a refresh left out (where the metric
                        `hit_rate_between_refreshes` is missing)
    of all lookups      hits over all lookups; a refresh has lookups and no hits
"""

from harness.papers.figures.panels import by_epoch, knob, line, panels

# By name: policy and tiers.
CACHES = {
    "jaca": ("jaca", "inclusive"),
    "jaca exclusive": ("jaca", "exclusive"),
    "lru": ("lru", "inclusive"),
    "fifo": ("fifo", "inclusive"),
}
TIERS = {"local": {"marker": "o", "linestyle": "-"}, "global": {"marker": "s", "linestyle": "--"}}


def draw(groups):
    figure, axes = panels(groups, "Halo rows found in a tier", 2, height=3.8, sharey=True)
    both, each = axes[0]
    for index, (name, cache) in enumerate(CACHES.items()):
        mine = [g for g in groups if (knob(g, "system.policy"), knob(g, "system.tiers")) == cache]
        runs = {knob(g, "system.capacity"): g.first for g in mine}
        draw_cache(both, each, name, index, dict(sorted(runs.items())))
    both.set_title("both tiers; solid: between refreshes, dotted: of all lookups", fontsize=9.5, loc="left")
    each.set_title("between refreshes; solid: local tier, dashed: global tier", fontsize=9.5, loc="left")
    for ax in axes[0]:
        ax.set_xlabel("capacity of each worker's tier and of the global one, vertices")
        ax.set_ylim(-2, 102)
    # One entry per colour: the titles name the strokes.
    named = [drawn for drawn in both.lines if drawn.get_label() in CACHES]
    both.legend(handles=named, frameon=False, fontsize=9, loc="lower right")
    both.set_ylabel("hits, % of lookups")
    return figure


def draw_cache(both, each, name: str, index: int, runs: dict) -> None:
    """The lines of one cache. runs: {capacity: run}, ascending."""
    for suffix, between, style in (("", True, "-"), (", of all lookups", False, ":")):
        rates = [share(run, *TIERS, between=between) for run in runs.values()]
        line(both, list(runs), rates, name + suffix, index, marker="o", markersize=4, linestyle=style)
    for tier, look in TIERS.items():
        rates = [share(run, tier, between=True) for run in runs.values()]
        line(each, list(runs), rates, f"{name}, {tier}", index, markersize=4, **look)


def share(run, *tiers: str, between: bool) -> float:
    """Hits of these tiers over lookups, in %; `between`: refreshes left out."""
    lookups = by_epoch(run, "lookups").loc[1:]
    counted = lookups.notna()
    if between:
        counted = by_epoch(run, "hit_rate_between_refreshes").reindex_like(lookups).notna()
    total = lambda name: by_epoch(run, name).reindex_like(lookups).where(counted).sum().sum()  # noqa: E731
    return 100 * sum(total(f"{tier}_hits") for tier in tiers) / total("lookups")
