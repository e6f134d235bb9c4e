"""CoFree-GNN (Cao, Deng, Wu, Huang, Subbian, Leskovec, 2023, arXiv 2308.03209): a vertex-cut whose copies of
a vertex never meet; the loss of a copy counts what it sees of the vertex.

An edge u -> v belongs to one worker, and both its ends have a copy there; a vertex has one master among its
copies. A_i holds worker i's edges, A = Σ A_i. Worker i computes from its own edges alone, each copy with a
self-loop in GCN:

    Â_i     degrees = "global":  the entries of Â where A_i has an edge, and on the diagonal
            "local":             the operator of A_i, degrees counted in it
    Z_i[l + 1] = Â_i H_i[l] W[l] + b[l],   H_i[l + 1] = ReLU(Z_i[l + 1])
    loss = Σ_i Σ_v share_i(v) loss(Z_i[L][v], v) / count         over the training vertices v, `count` of them
    share_i(v) = deg_i(v) / deg(v), the share of v's in-edges that i has, whatever their weights;
                 without any 1 at the master, else 0
                 weights = "equal": count over the copies of training vertices on all workers, at each copy

Gradients are those of this loss. A vertex of which i has no copy takes no part: its share is 0, and no edge
of i begins at it.

DropEdge-K: Â_i keeps in epoch t the entries of edges where `mask(t, i)` [V, V] is true, as they are, and its
diagonal. Evaluation is exact, on the whole graph.
"""

import numpy as np

from tests.oracles.bytes import FLOAT
from tests.oracles.dense import History, Weights, adjacency, loss_and_gradients, operator_of, summed
from tests.oracles.split import Training, owners


def shares(graph, owner: np.ndarray, master: np.ndarray, parts: int) -> np.ndarray:
    """[P, V] share_i(v)."""
    edge = adjacency(graph.replace(weights=None)) > 0
    degree = np.array([(edge & (owner == i)).sum(axis=1) for i in range(parts)])
    whole = degree.sum(axis=0)
    alone = master == np.arange(parts)[:, None]
    return np.where(whole > 0, degree / np.maximum(whole, 1), alone)


def equal_shares(graph, edges, master: np.ndarray) -> np.ndarray:
    """[P, V] share_i(v) where all copies of training vertices count alike; 0 where there is no copy."""
    held = np.zeros((edges.parts, graph.num_vertices), bool)
    held[master, np.arange(graph.num_vertices)] = True
    for ends in (edges.low, edges.high):
        held[edges.owner, ends] = True
    return held * graph.train.sum() / max(1, held[:, graph.train].sum())


def copies(edges, master: np.ndarray) -> int:
    """Copies that are not masters, over all workers."""
    here = {(i, v) for ends in (edges.low, edges.high) for i, v in zip(edges.owner, ends)}
    return sum(master[v] != i for i, v in here)


def epoch_bytes(edges, master: np.ndarray, width: int, *, features: str, first: bool) -> int:
    """Bytes of an epoch without those of the weights: the features, `width` wide, of all copies, in the first
    epoch or in every one."""
    return FLOAT * width * copies(edges, master) if first or features == "refetch" else 0


def train(
    graph,
    edges,
    master: np.ndarray,
    weights: Weights,
    mask=None,
    *,
    degrees: str = "global",
    share: str = "degrees",
    **how,
) -> History:
    """CoFree-GNN over a vertex-cut: `edges` has parts, and low, high, owner of every undirected edge;
    `master` [V]. mask None: no edge is dropped."""
    assert degrees in ("global", "local")
    case, workers = Training(graph, master, weights, **how), range(edges.parts)
    a, owner, model = case.a, owners(graph.num_vertices, edges), case.model
    assert (owner[a != 0] >= 0).all(), "an edge that no worker owns"
    loops = np.eye(len(a), dtype=bool)
    operators = [
        np.where((owner == i) | loops, case.operator, 0.0)
        if degrees == "global"
        else operator_of(np.where(owner == i, a, 0.0), model, case.normalisation)
        for i in workers
    ]
    equal = share == "equal"
    held = equal_shares(graph, edges, master) if equal else shares(graph, owner, master, edges.parts)
    train_shares = held * graph.train

    def worker(epoch, i, weights):
        kept = operators[i] if mask is None else np.where(mask(epoch, i) | loops, operators[i], 0.0)
        data = (case.x, graph.labels, train_shares[i], case.count, weights, model)
        return loss_and_gradients(kept, *data)

    return case.run(lambda epoch, weights: summed(worker(epoch, i, weights) for i in workers))
