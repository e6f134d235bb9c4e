"""LLCG (Ramezani et al., ICLR 2022), "Learn Locally, Correct Globally": periodic averaging with global
correction.

Round r (an epoch), from common weights W_r; part i has t_i of the t training vertices, and its subgraph is
the graph without the cut edges, degrees counted in it:

    local      every part, K times from W_i = W_r    W_i <- Adam_i(W_i, ∇ l_i(W_i)),   l_i = the mean loss
               over its own training
                                                      vertices on its subgraph (0 for a part without any)
    average    the server                             W  <- Σ_i (t_i / t) W_i
    correct    the server, S times                    W  <- Adam_s(W, ∇ L_B(W)),       L_B = the mean loss
               over a mini-batch B of
                                                      training vertices, on the whole graph, all neighbours in
                                                      all layers
               and W_{r+1} = W

Every Adam, the parts' and the server's, keeps its moments for ever; what averaging and correction do to the
weights does not touch them. B has min(batch, t) distinct vertices of the whole graph's training set; `draw(r,
s, t, size)` gives their positions in the ascending list of training vertices. The loss of a round is that of
its last local step, Σ_i (t_i / t) l_i, each at the weights W_i which that step starts from.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import Adam, History, Weights, loss_and_gradients, operator_of
from tests.oracles.split import Training


@dataclass
class LlcgHistory(History):
    """gradients: empty, a round has no single one."""

    corrections: list[list[float]] = field(default_factory=list)  # [r][s] L_B before correction s


class Rounds:
    """In the place of an optimiser: the round has already stepped, so what it hands over is the next
    weights.
    """

    def step(self, weights: Weights, gradients: Weights) -> Weights:
        return gradients


def train(
    graph, assignment: np.ndarray, weights: Weights, draw, *, local_steps: int, server_steps: int,
    batch: int, server_lr: float | None = None, **how,
) -> LlcgHistory:  # fmt: skip
    """`epochs` rounds over the parts of `assignment` [V]; server_lr None: lr."""
    assert local_steps >= 1 and server_steps >= 0 and batch >= 1
    case = Training(graph, assignment, weights, **how)
    lr, weight_decay = how["lr"], how.get("weight_decay", 0.0)
    a, x, model = case.a, case.x, case.model
    training = np.flatnonzero(graph.train)
    counts = [int(graph.train[rows].sum()) for rows in case.blocks]
    # a part: its operator, then what loss_and_gradients asks for
    parts = [
        (
            operator_of(a[np.ix_(rows, rows)], model, case.normalisation),
            x[rows],
            graph.labels[rows],
            graph.train[rows],
            max(n, 1),
        )
        for rows, n in zip(case.blocks, counts)
    ]
    local_adams = [Adam(lr, weight_decay) for _ in parts]
    server_adam = Adam(lr if server_lr is None else server_lr, weight_decay)
    history = LlcgHistory()

    def round_step(r, weights):
        loss, average = 0.0, {name: np.zeros_like(w) for name, w in weights.items()}
        for part, adam, n in zip(parts, local_adams, counts):
            own = weights
            for _ in range(local_steps):
                local, gradients = loss_and_gradients(*part, own, model)
                own = adam.step(own, gradients)
            loss += n / len(training) * local
            for name in average:
                average[name] = average[name] + n / len(training) * own[name]
        history.corrections.append([])
        weights = average
        for s in range(server_steps):
            size = min(batch, len(training))
            rows = training[np.asarray(draw(r, s, len(training), size))]
            assert len(np.unique(rows)) == len(rows) == size, "a mini-batch without replacement"
            chosen = np.isin(np.arange(len(x)), rows)
            corrected, gradients = loss_and_gradients(
                case.operator, x, graph.labels, chosen, size, weights, model
            )
            weights = server_adam.step(weights, gradients)
            history.corrections[-1].append(corrected)
        return loss, weights

    case.optimiser = Rounds()
    case.run(round_step, history)
    history.gradients = []
    return history
