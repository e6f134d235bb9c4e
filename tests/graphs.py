"""Random graphs for tests: one by its size, and a hypothesis strategy over all the shapes a graph may
take.
"""

import numpy as np
from hypothesis import strategies as st

from harness.data.csr import from_edges
from harness.data.graph import Graph, validate


def random_graph(
    num_vertices: int,
    mean_degree: float,
    *,
    num_features: int = 8,
    num_classes: int = 3,
    symmetric: bool = True,
    seed: int = 0,
    multilabel: bool = False,
    self_loops: bool = False,
) -> Graph:
    """A validated graph with uniform random endpoints; about `mean_degree` in-edges per vertex, repeats
    dropped.

    Half the vertices train, a quarter validate, an eighth test; the rest are in no split and, single-label,
    have label -1. Vertex 0 always trains. `self_loops` keeps the loops that the draw happens to hold.
    """
    rng = np.random.default_rng(seed)
    draws = int(num_vertices * mean_degree / (2 if symmetric else 1))
    source, target = rng.integers(0, num_vertices, (2, draws), dtype=np.int32)
    edges = from_edges(source, target, num_vertices, symmetrise=symmetric, self_loops=self_loops)
    split = rng.permutation(np.arange(num_vertices) * 8 // num_vertices)
    split[0] = 0
    if multilabel:
        labels = (rng.random((num_vertices, num_classes)) < 0.4).astype(np.uint8)
    else:
        labels = np.where(split < 7, rng.integers(0, num_classes, num_vertices), -1).astype(np.int32)
    return validate(
        Graph(
            name="random",
            indptr=edges.indptr,
            indices=edges.indices,
            features=rng.standard_normal((num_vertices, num_features), dtype=np.float32),
            labels=labels,
            num_classes=num_classes,
            train=split < 4,
            val=(split >= 4) & (split < 6),
            test=split == 6,
            symmetric=edges.symmetric,
        )
    )


def of_pattern(pattern: np.ndarray) -> Graph:
    """A graph with an edge u -> v where pattern[v, u]."""
    v, u = np.nonzero(pattern)
    edges = from_edges(u.astype(np.int32), v.astype(np.int32), len(pattern), symmetrise=False)
    plain = random_graph(len(pattern), 0)
    return plain.replace(indptr=edges.indptr, indices=edges.indices, symmetric=edges.symmetric)


def star(points: int) -> Graph:
    """Vertex 0 and `points` others, each with an edge to it and back."""
    pattern = np.zeros((points + 1, points + 1), bool)
    pattern[0, 1:] = pattern[1:, 0] = True
    return of_pattern(pattern)


@st.composite
def graphs(draw, min_vertices: int = 1, max_vertices: int = 40) -> Graph:
    """Directed and undirected, from edgeless to dense, with isolated vertices, self-loops, one label
    or many.
    """
    return random_graph(
        draw(st.integers(min_vertices, max_vertices)),
        draw(st.sampled_from([0.0, 0.5, 2.0, 6.0, 20.0])),
        num_features=draw(st.integers(1, 5)),
        num_classes=draw(st.integers(2, 4)),
        symmetric=draw(st.booleans()),
        seed=draw(st.integers(0, 2**32 - 1)),
        multilabel=draw(st.booleans()),
        self_loops=draw(st.booleans()),
    )


def edge_list(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(source, target) of every directed edge u -> v, in CSR order: ascending target, then source."""
    return graph.indices, np.repeat(np.arange(graph.num_vertices, dtype=np.int32), np.diff(graph.indptr))
