"""CaPGNN's Fig. 15: hit rate of the two tiers by policy and capacity.

From the metrics `local_hits`, `global_hits`, `refreshed` and `lookups`, over all layers and workers, epoch 0 left out. Rows that a refresh
fetches anew are no hits.
"""

from harness.figures.panels import by_epoch, knob, line, panels

TITLE = "CaPGNN, Fig. 15: hit rate by policy and capacity"
GRAPHS = [["twin/reddit dataset.scale=0.02"]]
POLICIES = ("jaca", "lru", "fifo")
CAPACITIES = (500, 1000, 2000, 3000, 5000)


def sweeps(graph: str) -> list[str]:
    capacities = ",".join(map(str, CAPACITIES))
    return [f"system=capgnn system.rapa=false system.pipeline=false system.features=refetch "
            f"system.policy={','.join(POLICIES)} system.capacity={capacities} "
            f"dataset={graph} partition=metis gpus=4 epochs=11 seed=1 evaluate.every=11"]  # fmt: skip


def draw(groups):
    figure, axes = panels(groups, "Halo rows found in a tier", 2, height=3.8, sharey=True)
    for p, policy in enumerate(POLICIES):
        mine = sorted((g for g in groups if knob(g, "system.policy") == policy), key=lambda g: knob(g, "system.capacity"))
        capacities = [knob(g, "system.capacity") for g in mine]
        line(axes[0, 0], capacities, [share(g.first, "local_hits", "global_hits") for g in mine], policy, p, marker="o", markersize=4)
        line(axes[0, 1], capacities, [share(g.first, "local_hits") for g in mine], f"{policy}, local", p, marker="o", markersize=4)
        line(axes[0, 1], capacities, [share(g.first, "global_hits") for g in mine], f"{policy}, global", p, marker="s", markersize=4,
             linestyle="--")  # fmt: skip
    for ax in axes[0]:
        ax.set_xlabel("capacity of each worker's tier and of the global one, vertices")
        ax.set_ylim(0, 102)
        ax.legend(frameon=False, fontsize=9)
    axes[0, 0].set_ylabel("hits, % of lookups")
    return figure


def share(run, *names: str) -> float:
    total = by_epoch(run, "lookups").loc[1:].to_numpy().sum()
    return 100 * sum(by_epoch(run, name).loc[1:].to_numpy().sum() for name in names) / total
