"""CDFGNN's Fig. 7: the share of messages that the adaptive cache lets through, by layer and direction, and its threshold.

From the metrics `sent_*` and `possible_*` (rows, gather and scatter together), `epsilon` and `train_accuracy`; with the usual dropout and
with none, since a mask drawn anew changes every row of a hidden layer by more than any threshold that is reached.
"""

from harness.figures.panels import by_epoch, knob, line, panels, series

TITLE = "CDFGNN, Fig. 7: share of messages sent by layer and direction, with epsilon"
GRAPHS = [["twin/reddit dataset.scale=0.02"]]


def sweeps(graph: str) -> list[str]:
    how = f"dataset={graph} gpus=4 epochs=150 seed=1 evaluate.every=10"
    return [f"system=cdfgnn system.features=refetch model.dropout=0.5,0 {how}"]


def draw(groups):
    title = "Messages sent of those possible, and the threshold"
    figure, axes = panels(groups, title, len(groups), 2, height=2.7, sharex=True, sharey="row")
    for column, group in enumerate(groups):
        run, (shares, threshold) = group.first, axes[:, column]
        shares.set_title(f"dropout {knob(group, 'model.dropout'):g}", fontsize=9.5, loc="left")
        for direction, stroke in (("forward", "-"), ("backward", "--")):
            share = 100 * by_epoch(run, f"sent_{direction}") / by_epoch(run, f"possible_{direction}")
            for layer in share:
                line(shares, share.index, share[layer], f"{direction}, layer {layer}", layer, linestyle=stroke)
        line(threshold, *series(run, "epsilon", 100), "epsilon", 2)
        line(threshold, *series(run, "train_accuracy", 100), "training accuracy", 3)
        threshold.set_yscale("log")
        threshold.set_xlabel("epoch")
    axes[0, 0].set_ylabel("messages sent, %")
    axes[0, 0].set_ylim(-2, 102)
    axes[1, 0].set_ylabel("%")
    lines = [*axes[0, 0].lines, *axes[1, 0].lines]
    figure.legend(lines, [each.get_label() for each in lines], loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure
