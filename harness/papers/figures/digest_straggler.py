"""DIGEST's Fig. 7: one slow worker, which everyone waits for in DIGEST and nobody in DIGEST-A.

The paper adds 8 to 10 s to each epoch of one worker; here it is 80 to 100 ms, as these graphs' epochs are
shorter. Time is the wall clock, since sleeping takes no CPU: of DIGEST an epoch of its slowest worker, of
DIGEST-A when the server had the updates of an epoch of the run (the metric `server_s`).
"""

from harness.papers.figures.panels import knob, line, panels, series


def draw(groups):
    what = "One worker is delayed by 80 to 100 ms per epoch (paper: 8 to 10 s)"
    figure, axes = panels(groups, what, 1, height=4.2)
    ax = axes[0, 0]
    for group in groups:
        delayed = knob(group, "straggler.rank") is not None
        served = "server_s" in set(group.first.trace.metrics["name"])
        epochs = group.first.trace.epochs
        accuracy = 100 * epochs.groupby("epoch")["test_acc"].first()
        if served:
            seconds = dict(zip(*series(group.first, "server_s")))
        else:
            lasted = epochs.groupby("epoch")["train_s"].max()
            lasted.iloc[0] = 0.0  # the server's clock starts when the first update arrives
            seconds = lasted.cumsum().to_dict()
        accuracy = accuracy.dropna()
        name, dashes = f"{group.first.name}{', a straggler' if delayed else ''}", "-" if delayed else "--"
        line(ax, [seconds[e] for e in accuracy.index], accuracy, name, int(served), linestyle=dashes)
    ax.set_xlabel("wall clock of training, s")
    ax.set_ylabel("test accuracy, %")
    ax.legend(frameon=False)
    return figure
