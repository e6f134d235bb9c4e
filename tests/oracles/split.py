"""What every oracle over parts begins with, and one forward and backward pass in which a row from another
part may be something else than its owner's present row.

The operator is split by who owns the column, Â = O + R: O[v, u] where v's part owns u, R[v, u] where another
does. Layer l (from 0) reads own rows fresh, and `received` says what it makes of the others:

    Z[l + 1] = (O H[l] + received(l, H[l])) W[l] + b[l]
    δ[L] = ∂loss/∂Z[L],   ∂W[l] = (O H[l] + received(l, H[l]))ᵀ δ[l + 1],   ∂b[l] = column sums of δ[l + 1]
    ∂H[l] = Oᵀ E + arriving(l, E),   E = δ[l + 1] W[l]ᵀ,     δ[l] = ∂H[l] ⊙ ReLU'(Z[l])      (l >= 1)

`arriving` says which gradients of own rows come in from the parts that read them. With received = R H[l] and
arriving = Rᵀ E the pass is exact. GraphSAGE adds H[l] R_root, always an own row.
"""

import numpy as np

from tests.oracles.dense import Adam, History, Weights, adjacency, num_layers, one_pass, operator_of, run


def blocks_of(assignment: np.ndarray) -> list[np.ndarray]:
    """The vertices of part 0, 1, ..., P-1, each ascending; P is the largest part id + 1."""
    return [np.flatnonzero(assignment == i) for i in range(int(assignment.max()) + 1)]


def remote_rows(a: np.ndarray, assignment: np.ndarray) -> list[list[np.ndarray]]:
    """[i][j]: the vertices of part j with an edge to a vertex of part i, ascending; none where i = j."""
    blocks = blocks_of(assignment)
    return [
        [own[a[np.ix_(rows, own)].any(axis=0)] if own is not rows else own[:0] for own in blocks]
        for rows in blocks
    ]


def split(matrix: np.ndarray, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(O, R), both [V, V]: the entries inside the parts of `assignment`, and those across."""
    same = assignment[:, None] == assignment[None, :]
    return np.where(same, matrix, 0.0), np.where(same, 0.0, matrix)


def owners(num_vertices: int, edges) -> np.ndarray:
    """[V, V] the worker that the edge u -> v and its reverse belong to in a vertex-cut, -1 where there is
    none."""
    owner = np.full((num_vertices,) * 2, -1)
    owner[edges.low, edges.high] = owner[edges.high, edges.low] = edges.owner
    return owner


class Training:
    """Training over the parts of `assignment` [V], from `weights` on.

    a, operator, own, remote  [V, V] the adjacency, Â, O and R
    blocks[i], halo[i][j]     the vertices of part i, and those of part j with an edge to one of part i
    x [V, F]; count           the features; how many vertices train
    """

    def __init__(
        self, graph, assignment: np.ndarray, weights: Weights, *, model: str = "gcn",
        normalisation: str = "symmetric", epochs: int, lr: float, weight_decay: float = 0.0,
    ):  # fmt: skip
        self.graph, self.weights, self.model, self.normalisation = graph, weights, model, normalisation
        self.epochs, self.optimiser = epochs, Adam(lr, weight_decay)
        self.a = adjacency(graph)
        self.operator = operator_of(self.a, model, normalisation)
        self.own, self.remote = split(self.operator, assignment)
        self.blocks, self.halo = blocks_of(assignment), remote_rows(self.a, assignment)
        self.parts, self.layers = range(len(self.blocks)), num_layers(weights)
        self.x, self.count = graph.features.astype(np.float64), int(graph.train.sum())

    def step(self, weights: Weights, received, arriving, own=None, train=None) -> tuple[float, Weights, list]:
        """(loss, gradients, H) of one pass; `train` as in dense.loss_and_delta."""
        own, train = self.own if own is None else own, self.graph.train if train is None else train
        data = (self.x, self.graph.labels, train, self.count, weights, self.model)
        return one_pass(own, *data, received, arriving)

    def run(self, epoch_step, history: History | None = None) -> History:
        """`epoch_step(epoch, weights)` gives (loss, gradients, ...) of every epoch."""
        how = (self.optimiser, self.epochs, self.model, self.normalisation)
        return run(self.graph, self.weights, lambda *at: epoch_step(*at)[:2], *how, history or History())
