"""Why staleness by an epoch does not settle where most of a row's weight is remote: learning rate against
remote share.

Left, the largest stable step of a linear model (docs/staleness.md) over the share of weight that is remote,
with the shares of the runs marked. Right, from traces, PipeGCN's last test accuracy over the learning rate
for partitions of several remote shares (`remote_weight` of their statistics), beside exact training.
"""

import numpy as np

from harness.papers.figures.panels import knob, line, panels

MOMENTUM = 0.9  # Adam's beta_1


def largest_step(remote: float, momentum: float = MOMENTUM) -> float:
    """The largest learning rate times curvature at which the linear model's updates stay bounded.

    With w the error of the one parameter and r the remote share, rows forward and gradients backward are an
    epoch old where they are remote, so that

        g_t = (1 - r)^2 w_t + 2 r (1 - r) w_{t-1} + r^2 w_{t-2}
        m_t = b m_{t-1} + (1 - b) g_t,    w_{t+1} = w_t - s m_t

    Bounded as long as no eigenvalue of the step (w_t, w_{t-1}, w_{t-2}, m_{t-1}) -> (w_{t+1}, ...) is larger
    than 1; with r = 0 that is s <= 2 (1 + b) / (1 - b).
    """
    low, high = 0.0, 2 * (1 + momentum) / (1 - momentum)
    if spectral_radius(high, remote, momentum) <= 1 + 1e-9:
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if spectral_radius(middle, remote, momentum) <= 1 + 1e-9 else (low, middle)
    return low


def spectral_radius(step: float, remote: float, momentum: float) -> float:
    """The largest magnitude of an eigenvalue of the step that `largest_step` writes out."""
    gradient = np.array([(1 - remote) ** 2, 2 * remote * (1 - remote), remote**2])
    mean = np.append((1 - momentum) * gradient, momentum)
    update = np.vstack([np.eye(4)[0] - step * mean, np.eye(4)[0], np.eye(4)[1], mean])
    return float(np.abs(np.linalg.eigvals(update)).max())


def draw(groups):
    figure, axes = panels(groups, "Rows and gradients an epoch old, under Adam", 2, height=4.0)
    model, measured = axes[0]
    shares = np.linspace(0, 1, 101)
    line(model, 100 * shares, [largest_step(share) for share in shares], "largest stable step", 6)
    together: dict[tuple[str, float], list] = {}
    for group in groups:
        stale = group.first.role != "reference"
        share = group.first.trace.shards["remote_weight"] if stale else 0.0
        together.setdefault((group.first.name, share), []).append(group)
    for index, ((_, share), members) in enumerate(sorted(together.items(), key=lambda pair: pair[0][1])):
        members.sort(key=lambda group: knob(group, "optimiser.lr"))
        scores = [
            group.estimate(
                lambda s: 100 * s["final"]["test"] if s["final"] and s["diverged"] is None else None
            )
            for group in members
        ]
        label = (
            "exact"
            if members[0].first.role == "reference"
            else f"{members[0].partition}, {members[0].workers} workers: {100 * share:.0f} % remote"
        )
        rates, means = [knob(group, "optimiser.lr") for group in members], [score.mean for score in scores]
        line(measured, rates, means, label, index, marker="o", markersize=4)
        if members[0].first.role != "reference":
            line(model, [100 * share], [largest_step(share)], label, index, marker="o", linestyle="none")
    model.set_yscale("log")
    model.set_xlabel("share of weight that is remote, %")
    model.set_ylabel("learning rate times curvature")
    measured.set_xscale("log")
    measured.set_xlabel("learning rate")
    measured.set_ylabel("test accuracy in the last epoch, %")
    measured.legend(frameon=False, fontsize=8.5)
    return figure
