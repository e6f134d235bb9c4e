"""CoFree-GNN equals its paper's equations, epoch by epoch, on random graphs and vertex-cuts, masks shared."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.splitmix import mix_int
from harness.data.partition.shard import Csr
from systems import cofree as system
from tests import systems
from tests.oracles import cofree
from tests.oracles.samples import OPERATORS, RUNS, random_graph, with_edge_weights
from tests.systems import Settings

METHODS = ["ebv", "hep", "dne", "metis/edges"]


def masks(graph, seed: int, count: int, rate: float):
    """A run's masks as the oracle asks for them, of the whole graph."""
    if not count:
        return None
    n, made = graph.num_vertices, []
    for number in range(count):
        left = system.kept(Csr(graph.indptr, graph.indices, n), np.arange(n), seed, number, rate)
        made.append(left.dense() > 0)
    return lambda epoch, _: made[mix_int((seed * 1_000_003 + epoch) & system.MASK) % count]


@settings(max_examples=10)
@given(
    degrees=st.sampled_from(["global", "local"]),
    loss=st.sampled_from(["degrees", "equal"]),
    drop=st.tuples(st.sampled_from([0, 1, 3]), st.sampled_from([0.3, 0.5, 0.9])),
    method=st.sampled_from(METHODS),
    operator=st.sampled_from(OPERATORS),
    labels=st.sampled_from(["one", "one", "several"]),
    weighted=st.sampled_from([False, False, True]),
    **RUNS,
)
def test_cofree_equals_its_oracle(
    pool, degrees, loss, drop, method, operator, labels, weighted, seed, parts, directed, layers
):
    graph = random_graph(seed, vertices=18, directed=directed, multilabel=labels == "several")
    graph = with_edge_weights(graph, seed) if weighted else graph
    name, normalisation = operator
    how = Settings(systems.small(name, layers, normalisation=normalisation), epochs=6, seed=seed)
    block = systems.block("cofree", degrees=degrees, weights=loss, drop_edges=drop[0], drop_rate=drop[1])
    outcome = systems.run(pool, graph, block, parts, method, how)
    knobs = {"degrees": degrees, "share": loss, "model": name, "normalisation": normalisation}
    history = systems.history(cofree.train, graph, outcome, how, masks(graph, seed, *drop), **knobs)
    systems.assert_trained_alike(outcome, history)
