"""CaPGNN's Fig. 20: every worker's cost lambda while RAPA takes halo vertices from the workers with high
costs, on the paper's testbeds.

From the metrics `rapa_lambda`, `rapa_vertices` and `rapa_edges`, whose layer is the iteration of Algorithm 2;
iteration 0 is the partition before RAPA.
"""

from harness.papers.figures.panels import knob, line, panels


def draw(groups):
    figure, axes = panels(
        groups, "RAPA: costs of the workers by iteration", 3, len(groups), height=2.8, width=11
    )
    whats = {"rapa_lambda": "lambda, relative times", "rapa_vertices": "vertices", "rapa_edges": "edges"}
    for row, group in zip(axes, groups):
        metrics = group.first.trace.metrics
        kinds = [device["kind"] for device in group.first.trace.config["cluster"]["devices"]]
        for ax, (name, what) in zip(row, whats.items()):
            values = metrics[metrics["name"] == name].pivot(index="layer", columns="worker", values="value")
            for worker in values:
                line(ax, values.index, values[worker], f"{worker}: {kinds[worker]}", worker)
            ax.set_ylabel(what)
            ax.set_xlabel("iteration")
        row[0].set_title(f"cluster {knob(group, 'cluster.name')}", fontsize=9.5, loc="left")
        row[-1].legend(frameon=False, fontsize=8, bbox_to_anchor=(1, 1))
    return figure
