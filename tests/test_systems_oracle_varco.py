"""VARCO equals its paper's equations, epoch by epoch, on random graphs, columns shared; its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.varco import columns
from tests import systems
from tests.oracles import bytes as count
from tests.oracles import dense, varco
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings

KNOBS = {
    "compression": st.sampled_from([2, 4, 16, 128]),
    "slope": st.sampled_from([1, 2, 5]),
    "rescale": st.booleans(),
    "features": st.sampled_from(["once", "refetch"]),
}
CASES = {**RUNS, "model": st.sampled_from(OPERATORS)}


def trained(pool, knobs, run):
    """Graph and outcome of a run of the system; what every oracle takes by name."""
    graph, (name, normalisation) = (
        random_graph(run["seed"], vertices=18, directed=run["directed"]),
        run["model"],
    )
    model = {"name": name, "layers": run["layers"], "hidden": 4, "dropout": 0.0}
    how = Settings(model | {"normalisation": normalisation}, epochs=6, seed=run["seed"])
    outcome = systems.run(pool, graph, systems.block("varco", **knobs), run["parts"], settings=how)
    return graph, outcome, dict(model=name, normalisation=normalisation, epochs=how.epochs, **how.optimiser)


@settings(max_examples=10)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(CASES))
def test_varco_equals_its_oracle(pool, knobs, run):
    graph, outcome, how = trained(pool, knobs, run)

    def drawn(*which):
        return columns(run["seed"], *which).numpy()

    history = varco.train(graph, outcome.assignment, outcome.weights[0], drawn, **knobs, **how)
    systems.assert_trained_alike(outcome, history)


@settings(max_examples=4)
@given(rescale=KNOBS["rescale"], features=KNOBS["features"], run=st.fixed_dictionaries(CASES))
def test_without_compression_it_is_full_graph_training(pool, rescale, features, run):
    graph, outcome, how = trained(pool, dict(compression=1, rescale=rescale, features=features), run)
    systems.assert_trained_alike(outcome, dense.train(graph, outcome.weights[0], **how))


@pytest.mark.parametrize("features", ["once", "refetch"])
def test_bytes_are_those_of_the_columns_kept(pool, features):
    """4 bytes for each column kept of a row. With r_t = 4 - t, then 1, they are 2, 2, 3 and all, of 5 and of
    6 columns alike; under "once" layer 0 is fetched whole, in the first epoch alone."""
    graph = random_graph(12, vertices=40)
    how = Settings({"name": "gcn", "layers": 3, "hidden": 6, "dropout": 0.0}, dtype="float32", epochs=6)
    block = systems.block("varco", compression=4, slope=2, features=features)
    outcome = systems.run(pool, graph, block, 4, settings=how)
    for epoch, some in enumerate([2, 2, 3, 6, 6, 6]):
        kept = np.minimum([5, 6, 6], some)
        if features == "once":
            kept[0] = 5
        want = count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)
        for way in ("forward", "backward"):
            sent = systems.bytes_by_layer(outcome, epoch, way)
            np.testing.assert_array_equal(sent, 4 * kept * want["rows"][way])


def test_columns_are_drawn_anew_for_every_epoch_and_layer():
    """Ascending, as many as asked for, each of 12 about as often as the others."""
    drawn = [columns(3, epoch, layer, 12, 4).tolist() for epoch in range(200) for layer in range(3)]
    assert all(some == sorted(set(some)) and len(some) == 4 for some in drawn)
    often = np.bincount(np.concatenate(drawn), minlength=12)
    assert len(often) == 12 and (abs(often - 200) < 6 * np.sqrt(200 * 2 / 3)).all()
    # Of the 495 choices 600 draws meet about 348; 200 would meet 165.
    assert len(set(map(tuple, drawn))) > 300
    assert [columns(4, epoch, 0, 12, 4).tolist() for epoch in range(9)] != drawn[:27:3]
    assert columns(3, 0, 0, 12, 12).tolist() == list(range(12))
