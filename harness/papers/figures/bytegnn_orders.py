"""ByteGNN's two orders of ready tasks, modelled on a virtual clock.

A batch has as many tasks as the trace has per batch in the mean, each of the mean length. All batches begin
at one moment. Other machines answer after LATENCY seconds, which is assumed. The numbers come from the
metrics `nsc_tasks`, `nsc_s`, `fetch_tasks` and `fetch_s`, by layer, and `steps`. Tasks of one kind and layer
count as equally long.
"""

from harness.base.errors import InputError
from harness.papers.figures.panels import by_epoch, line, panels
from systems.parts.virtual import Stage, made

BATCHES, THREADS = (1, 2, 4, 8, 16), (1, 2, 4)
SHOWN = 8  # batches in the first panel
LATENCY = 0.0005


def draw(groups):
    figure, axes = panels(
        groups, "ByteGNN's two orders of tasks, modelled on a virtual clock", 3, height=3.6, width=12
    )
    completion, mean, last = axes[0]
    stages = stages_of(groups[0].first)
    numbers = range(1, SHOWN + 1)
    for index, (order, name) in enumerate((("dag", "oldest batch first"), ("fifo", "as tasks are ready"))):
        when = [1000 * each for each in made(stages, SHOWN, 1, order, LATENCY)]
        line(completion, numbers, when, name, index, marker="o", markersize=4)
    completion.set_xlabel("batch, all begun at 0; one thread")
    completion.set_ylabel("made after, modelled ms")
    completion.set_ylim(bottom=0)
    completion.legend(frameon=False, fontsize=9)
    for index, threads in enumerate(THREADS):
        ratios, ends = [], []
        for batches in BATCHES:
            dag, fifo = (made(stages, batches, threads, order, LATENCY) for order in ("dag", "fifo"))
            ratios.append(sum(dag) / sum(fifo))
            ends.append(max(dag) / max(fifo))
        for ax, values in ((mean, ratios), (last, ends)):
            line(
                ax, BATCHES, values, f"{threads} thread{'s' * (threads > 1)}", index, marker="o", markersize=4
            )
    for ax, what in ((mean, "mean batch made"), (last, "last batch made")):
        ax.set_xlabel("batches begun at once")
        ax.set_ylabel(f"{what}: oldest first / as ready")
        ax.set_xscale("log", base=2)
        ax.set_xticks(BATCHES, [str(each) for each in BATCHES])
        ax.set_ylim(0.6, 1.2)
    mean.legend(frameon=False, fontsize=9)
    return figure


def stages_of(run) -> list[Stage]:
    """A batch's stages, from the seeds on: the hops, layer L - 1 first, and what is fetched after each."""
    batches = by_epoch(run, "steps").loc[1:].sum().sum()
    found = {}
    for kind in ("nsc", "fetch"):
        tasks, seconds = (by_epoch(run, f"{kind}_{what}").loc[1:].sum() for what in ("tasks", "s"))
        for layer in tasks.index[tasks > 0]:
            found[kind, layer] = round(tasks[layer] / batches), seconds[layer] / tasks[layer]
    if not found:
        raise InputError(f"{run.path} has no tasks after its first epoch: give epochs=2 or more")
    layers = sorted((layer for kind, layer in found if kind == "nsc"), reverse=True)
    stages = [Stage(*found["nsc", layer], hop - 1 if hop else None) for hop, layer in enumerate(layers)]
    once = run.trace.config["system"]["features"] == "once"
    for (kind, layer), (tasks, seconds) in found.items():
        if kind == "fetch":
            after = layers.index(layer) if layer in layers else None  # none: the seeds' own rows
            stages.append(Stage(tasks, seconds, after, once))
    return stages
