"""The controls: training in which no part uses a remote row.

zero_halo   every remote row is 0 in every layer; degrees are the whole graph's, so local edges keep their
            weight
local       cut edges are dropped, and degrees are counted again inside each part

In both, nothing of one part enters another part's forward or backward pass. So each part trains on a matrix
of its own, its loss is the sum over its own training vertices divided by the GLOBAL number of training
vertices, and the parts meet only where the weight gradients (and the losses) are summed.
"""

import numpy as np

from tests.oracles.dense import History, Weights, loss_and_gradients, operator_of, summed
from tests.oracles.split import Training


def zero_halo(graph, assignment: np.ndarray, weights: Weights, **how) -> History:
    """`how`: as split.Training takes it; so for `local`."""
    case = Training(graph, assignment, weights, **how)
    return _train_apart(case, [case.operator[np.ix_(rows, rows)] for rows in case.blocks])


def local(graph, assignment: np.ndarray, weights: Weights, **how) -> History:
    case = Training(graph, assignment, weights, **how)
    inside = [case.a[np.ix_(rows, rows)] for rows in case.blocks]
    return _train_apart(case, [operator_of(a, case.model, case.normalisation) for a in inside])


def _train_apart(case: Training, operators: list[np.ndarray]) -> History:
    graph, data = case.graph, list(zip(case.blocks, operators))

    def epoch_step(_, weights):
        return summed(
            loss_and_gradients(
                operator, case.x[rows], graph.labels[rows], graph.train[rows], case.count, weights, case.model
            )
            for rows, operator in data
        )

    return case.run(epoch_step)
