"""Small random graphs, weights and partitions on which the oracles are tried."""

import numpy as np
from hypothesis import strategies as st

from harness.data.graph import Graph, validate
from tests.oracles import dense

WIDTHS = [5, 4, 3]
# What is drawn for a run that is compared with an oracle, the model and the system's knobs apart.
RUNS = {
    "seed": st.integers(0, 10_000),
    "parts": st.integers(2, 4),
    "directed": st.booleans(),
    "layers": st.integers(2, 3),
}
OPERATORS = [("gcn", "symmetric"), ("gcn", "row"), ("sage", "symmetric")]  # model and normalisation
DEEP = [5, 4, 4, 3]
# What is drawn for a `case` of an oracle.
CASES = {
    "seed": st.integers(0, 10**6),
    "parts": st.integers(1, 4),
    "operator": st.sampled_from(OPERATORS),
    "features": st.sampled_from(["once", "refetch"]),
}


def random_graph(seed: int, *, vertices=14, directed=True, multilabel=False, classes=WIDTHS[-1]) -> Graph:
    """Random edges, a self-loop among them, one vertex that nothing points at, and labels -1 outside the
    splits.
    """
    rng = np.random.default_rng(seed)
    a = rng.random((vertices, vertices)) < 0.25  # a[v, u]: u -> v
    if not directed:
        a |= a.T
    a[3, :] = False
    if not directed:
        a[:, 3] = False
    a[1, 1] = True
    split = rng.permutation(vertices)
    masks = [np.isin(np.arange(vertices), rows) for rows in (split[:6], split[6:9], split[9:12])]
    labels = rng.integers(0, classes, vertices).astype(np.int32)
    labels[split[12:]] = -1
    if multilabel:
        labels = (rng.random((vertices, classes)) < 0.4).astype(np.uint8)
    return validate(
        Graph(
            name="random",
            indptr=np.concatenate([[0], a.sum(axis=1).cumsum()]).astype(np.int32),
            indices=np.nonzero(a)[1].astype(np.int32),
            features=rng.standard_normal((vertices, WIDTHS[0])).astype(np.float32),
            labels=labels,
            num_classes=classes,
            train=masks[0],
            val=masks[1],
            test=masks[2],
            symmetric=bool((a == a.T).all()),
        )
    )


def with_edge_weights(graph: Graph, seed: int, zeros: float = 0.2) -> Graph:
    """`graph` with random weights, a share `zeros` of them 0; a symmetric graph's are alike both ways."""
    rng, n = np.random.default_rng(seed), graph.num_vertices
    weights = rng.uniform(0.1, 3.0, (n, n)) * (rng.random((n, n)) >= zeros)
    if graph.symmetric:
        weights = np.triu(weights) + np.triu(weights, 1).T
    return validate(graph.replace(weights=weights[targets_of(graph), graph.indices].astype(np.float32)))


def graph_of_kind(kind: str, seed: int, directed: bool) -> Graph:
    """ "plain", or "multilabel", or "weighted": of edges with weights."""
    graph = random_graph(seed, vertices=18, directed=directed, multilabel=kind == "multilabel")
    return with_edge_weights(graph, seed, zeros=0.0) if kind == "weighted" else graph


def random_weights(seed: int, model="gcn", widths=WIDTHS) -> dense.Weights:
    rng, weights = np.random.default_rng(seed), {}
    for l in range(len(widths) - 1):
        weights[f"layers.{l}.weight"] = 0.5 * rng.standard_normal((widths[l], widths[l + 1]))
        if model == "sage":
            weights[f"layers.{l}.root"] = 0.5 * rng.standard_normal((widths[l], widths[l + 1]))
        weights[f"layers.{l}.bias"] = 0.1 * rng.standard_normal(widths[l + 1])
    return weights


def random_blocks(seed: int, vertices: int, parts: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(np.arange(vertices) % parts)


def case(seed, parts, operator=OPERATORS[0], **more):
    """Graph, assignment and weights; and what every oracle takes by name."""
    graph, (model, normalisation) = random_graph(seed), operator
    data = (graph, random_blocks(seed, graph.num_vertices, parts), random_weights(seed, model, widths=DEEP))
    how = dict(model=model, normalisation=normalisation, epochs=5, lr=0.02, weight_decay=0.01)
    return data, how | more


def draw(epoch, layer, direction, sender, shape):
    """Numbers from 0 to 1 for what a sender rounds, as oracles ask for them."""
    return np.random.default_rng([epoch, layer, direction == "backward", sender]).random(shape)


def keeping(graph: Graph, kept: np.ndarray) -> Graph:
    """The graph with those of its edges alone that `kept` [E] says."""
    degree = np.bincount(targets_of(graph)[kept], minlength=graph.num_vertices)
    indptr = np.concatenate([[0], degree.cumsum()]).astype(np.int32)
    return graph.replace(indptr=indptr, indices=graph.indices[kept])


def targets_of(graph: Graph) -> np.ndarray:
    """[E] where each edge leads to."""
    return np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))


def without_cut_edges(graph: Graph, assignment: np.ndarray) -> Graph:
    return keeping(graph, assignment[targets_of(graph)] == assignment[graph.indices])


def assert_same_run(a: dense.History, b: dense.History, rtol=1e-10):
    np.testing.assert_allclose(a.losses, b.losses, rtol=rtol)
    for name in a.weights:
        np.testing.assert_allclose(a.weights[name], b.weights[name], rtol=rtol, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(a.logits, b.logits, rtol=rtol, atol=1e-12)


def differs(a: dense.History, b: dense.History) -> bool:
    return not np.allclose(a.losses, b.losses, rtol=1e-6)
