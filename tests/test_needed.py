"""Training that computes and exchanges the rows alone that the loss needs gives what training on all rows
gives.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.architectures import Gcn
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from systems.lean import Lean
from systems.replicate import Replicate
from tests import systems
from tests.oracles import dense
from tests.oracles.lean import needed_sets
from tests.oracles.samples import OPERATORS, random_graph, with_edge_weights
from tests.systems import Settings

OPERATORS_AND_GAT = [*OPERATORS, ("gat", "symmetric")]
NEEDED = {"rows": "needed", "epochs": 3}


def sparse_graph(seed: int, *, vertices=22, directed=True, trained=3, weighted=False, multilabel=False):
    """A random graph of few edges, of which few vertices train: the loss needs a part of it."""
    graph = random_graph(seed, vertices=vertices, directed=directed, multilabel=multilabel)
    rng = np.random.default_rng(seed)
    a = dense.adjacency(graph) * (rng.random((vertices, vertices)) < 0.3)
    a = a if directed else np.maximum(a, a.T)
    train = np.zeros(vertices, bool)
    train[np.flatnonzero(graph.train)[:trained]] = True
    graph = replace(
        graph,
        indptr=np.concatenate([[0], (a > 0).sum(axis=1).cumsum()]).astype(np.int32),
        indices=np.nonzero(a)[1].astype(np.int32),
        train=train,
        symmetric=bool((a == a.T).all()),
    )
    return with_edge_weights(graph, seed, zeros=0.0) if weighted else graph


@settings(max_examples=14)
@given(
    seed=st.integers(0, 10_000),
    parts=st.integers(1, 4),
    layers=st.integers(1, 4),
    directed=st.booleans(),
    weighted=st.booleans(),
    trained=st.integers(1, 6),
    model=st.sampled_from(OPERATORS_AND_GAT),
    features=st.sampled_from(["once", "refetch"]),
    filled=st.sampled_from([0.02, 0.3, 1.0]),
)
def test_needed_rows_are_full_graph_training(
    pool, seed, parts, layers, directed, weighted, trained, model, features, filled
):
    """Losses and weights are the dense oracle's, and what travels is what the sets say. Of features of which
    few are not 0 sparse rows are kept, or A X of the rows that are needed."""
    weighted &= model[0] != "gat"
    graph = sparse_graph(seed, directed=directed, trained=trained, weighted=weighted)
    there = np.random.default_rng(seed).random(graph.features.shape) < filled
    graph = replace(graph, features=graph.features * there)
    how = Settings(model=systems.small(model[0], layers, normalisation=model[1]), **NEEDED)
    block = systems.block("vanilla", features=features)
    outcome = systems.run(pool, graph, block, parts, "random", how)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))
    sets, a = needed_sets(graph, layers), dense.adjacency(graph) != 0
    for layer in range(layers):
        owned = [outcome.assignment == part for part in range(parts)]
        halo = sum(int((a[sets[layer + 1] & own].any(0) & ~own).sum()) for own in owned)
        rows = [worker["metrics"][1][layer, "needed_rows"] for worker in outcome.workers]
        assert rows == [(sets[layer] & own).sum() for own in owned]
        for epoch in range(how.epochs):
            sent = {key: rows for key, (rows, _) in outcome.sent(epoch).items() if key[0] == layer}
            fetched = {"once": "features", "refetch": "halo"}[features] if layer == 0 else "halo"
            want = {(layer, "forward", fetched): halo} if layer or epoch == 0 or features == "refetch" else {}
            want |= {(layer, "backward", "halo"): halo} if layer else {}
            assert {key: rows for key, rows in sent.items() if rows} == {k: r for k, r in want.items() if r}


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_a_worker_may_have_no_needed_row(pool, model):
    graph = sparse_graph(3, trained=1)
    graph.indices[:] = np.flatnonzero(graph.train)[0]  # nobody reads another's row
    how = Settings(model=systems.small(model), **NEEDED)
    outcome = systems.run(pool, graph, systems.block("vanilla"), 3, "random", how)
    assert [worker["metrics"][0][0, "needed_rows"] == 0 for worker in outcome.workers].count(True) == 2
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))


@pytest.mark.parametrize(
    "model, features, multilabel",
    [
        (systems.small("sage", 3, dropout=0.4, norm="layer", input_dropout=0.3), "once", False),
        (systems.small("gat", 2, dropout=0.4, input_dropout=0.3), "once", True),
        (systems.small("gcn", 2, dropout=0.4, norm="l2", residual=True), "refetch", True),
    ],
)
def test_masks_norms_and_residuals_are_those_of_all_rows(pool, model, features, multilabel):
    graph = sparse_graph(5, vertices=30, trained=5, multilabel=multilabel)
    block = systems.block("vanilla", features=features)
    found = [
        systems.run(pool, graph, block, 3, "random", Settings(model=model, epochs=4, rows=rows))
        for rows in ("all", "needed")
    ]
    np.testing.assert_allclose(found[1].losses, found[0].losses, rtol=1e-9)
    for one, other in zip(found[0].weights, found[1].weights):
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=1e-5, atol=1e-9, err_msg=name)
    assert found[0].scores == found[1].scores, "evaluation sees the whole graph"
    assert sum(size for _, size in found[1].sent(1).values()) < sum(
        size for _, size in found[0].sent(1).values()
    )


@pytest.mark.parametrize("name, rtol", [("pipegcn", 1e-9), ("adaqp", 2e-2)])
def test_other_exchanges_of_rows_may_take_it(pool, name, rtol):
    """A stale row that the loss does not need reaches nothing; noise is drawn for the rows that travel."""
    graph = sparse_graph(5, vertices=30, trained=5)
    how = [Settings(model=systems.small("gcn", 3), epochs=6, rows=rows) for rows in ("all", "needed")]
    every, needed = (systems.run(pool, graph, systems.block(name), 3, "random", each) for each in how)
    np.testing.assert_allclose(needed.losses, every.losses, rtol=rtol)
    rows = [
        sum(r for (_, _, kind), (r, _) in run.sent(2).items() if kind == "halo") for run in (every, needed)
    ]
    assert 0 < rows[1] < rows[0]


def test_what_cannot_do_without_rows_says_why():
    needed = replace(facts_of("gcn"), rows="needed")
    able = {"vanilla", "zero_halo", "adaqp", "pipegcn", "lean", "varco", "sylvie", "replicate"}
    able |= {"ecgraph", "supergnn"}
    for name in systems.VARIANTS:
        reason = make_system(systems.block(name)).supports(needed)
        if name in able:
            assert reason is None
        else:
            assert reason is not None and reason.startswith(f"rows=needed cannot be: {name} ")
            assert reason.endswith("; give rows=all") and "\n" not in reason
    system = make_system(systems.block("vanilla"))
    assert "model.norm=batch" in system.supports(replace(needed, norm="batch"))
    assert "model=mixed" in system.supports(replace(needed, model="mixed", fewer_rows=False))
    assert Gcn.fewer_rows
    mixed = replace(facts_of("gcn"), fewer_rows=False)
    for system, knob in ((Replicate(), "mode=hybrid"), (Lean(extra_work=1.0), "extra_work=1.0")):
        said = (
            f"system.{knob} cannot be: the layers of model=gcn give as many rows as they take; give system."
        )
        assert str(system.supports(mixed)).startswith(said)
    assert Replicate(mode="communicate").supports(mixed) is Lean().supports(mixed) is None
