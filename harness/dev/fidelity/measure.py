"""What is measured of a twin: homophily, METIS halos, EBV replication, accuracy (also without edges)."""

import numpy as np
import torch

from harness.data.graph import Graph
from harness.data.partition.assign import assign
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.data.twin_specs import SPECS

QUICK_EDGES = 6_000_000  # the default scale leaves at most this many directed edges


def quick_scale(name: str) -> float:
    """The scale at which the twin has about QUICK_EDGES directed edges; 1 where it has no more anyway."""
    return min(1.0, QUICK_EDGES / SPECS[name].edges)


def _targets(graph: Graph) -> np.ndarray:
    """[E] the vertex whose row each edge stands in."""
    return np.repeat(np.arange(graph.num_vertices, dtype=np.int32), np.diff(graph.indptr))


def homophily(graph: Graph) -> float:
    """Share of labelled vertices' edges inside a class; multi-label: mean Jaccard index of label sets."""
    ends, labels = (_targets(graph), graph.indices), graph.labels
    if not graph.multilabel:
        own, others = (labels[each] for each in ends)
        both = (own >= 0) & (others >= 0)
        return float((both & (own == others)).sum() / max(both.sum(), 1))
    common = either = np.zeros(len(graph.indices))
    for label in labels.T:  # one label at a time, so that no table of edges and labels is made
        own, others = (label[each] for each in ends)
        common, either = common + (own & others), either + (own | others)
    return float((common / np.maximum(either, 1)).sum() / max(len(graph.indices), 1))


def halo_ratio(graph: Graph, parts: int) -> float:
    """Mean halo vertices of a METIS part over its mean inner vertices (PSC-GCN Table I: boundary / inner)."""
    return halos(graph, assign(graph, "metis", parts, 0), parts) / graph.num_vertices


def halos(graph: Graph, owner: np.ndarray, parts: int) -> int:
    """Halo vertices summed over the parts: of each vertex, the other parts that hold a neighbour of it."""
    there, here = _targets(graph), owner[graph.indices]
    cut = owner[there] != here
    return len(np.unique(there[cut].astype(np.int64) * parts + here[cut]))


def replication(graph: Graph, parts: int) -> float:
    """Mean replicas of a vertex under EBV, gamma 0 (CDFGNN section 6)."""
    return statistics(assign_edges(graph, "ebv", parts, 1, gamma=0.0))["replication"]


def accuracy(graph: Graph, *, use_graph: bool, epochs: int, hidden: int = 128) -> tuple[float, float]:
    """(validation, test) accuracy, or micro-F1 for label sets, at the best validation epoch of a short
    training.

    Two layers, dropout 0.5, Adam 0.01, seed 0. Without `use_graph` nothing is aggregated: same model, no
    neighbours.
    """
    torch.manual_seed(0)
    multiply = _propagation(graph) if use_graph else (lambda x: x)
    # Layer 0 does not change: its aggregation is done once, which is exact.
    x = multiply(torch.from_numpy(graph.features))
    sizes = (graph.num_features, hidden, graph.num_classes)
    layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
    optimiser = torch.optim.Adam(layers.parameters(), lr=0.01)
    masks = [torch.from_numpy(mask) for mask in (graph.train, graph.val, graph.test)]
    y = torch.from_numpy(graph.labels.astype(np.float32 if graph.multilabel else np.int64))
    nn = torch.nn.functional
    loss = nn.binary_cross_entropy_with_logits if graph.multilabel else nn.cross_entropy

    def forward(training: bool) -> torch.Tensor:
        h = nn.dropout(torch.relu(layers[0](x)), 0.5, training)
        return multiply(layers[1](h))

    best = (0.0, 0.0)
    for epoch in range(epochs):
        optimiser.zero_grad()
        loss(forward(True)[masks[0]], y[masks[0]]).backward()
        optimiser.step()
        if epoch % 5 == 4 or epoch == epochs - 1:
            with torch.no_grad():
                z = forward(False)
            val, test = (_score(z[mask], y[mask], graph.multilabel) for mask in masks[1:])
            best = max(best, (val, test))
    return best


def _score(z: torch.Tensor, y: torch.Tensor, multilabel: bool) -> float:
    if not multilabel:
        return float((z.argmax(1) == y).float().mean())
    said, true = z > 0, y > 0
    return float(2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1))


def _propagation(graph: Graph):
    """x -> D^-1/2 (A + I) D^-1/2 x, differentiable: its own adjoint, since a twin is symmetric."""
    root = ((np.diff(graph.indptr) + 1.0) ** -0.5).astype(np.float32)
    weight = root[_targets(graph)] * root[graph.indices]
    matrix = torch.sparse_csr_tensor(
        torch.from_numpy(graph.indptr),
        torch.from_numpy(graph.indices),
        torch.from_numpy(weight),
        (graph.num_vertices, graph.num_vertices),
        check_invariants=False,
    )
    loop = torch.from_numpy(root * root)[:, None]

    class Multiply(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.addcmul(torch.sparse.mm(matrix, x), loop, x)

        @staticmethod
        def backward(ctx, gradient):
            return torch.addcmul(torch.sparse.mm(matrix, gradient), loop, gradient)

    return Multiply.apply
