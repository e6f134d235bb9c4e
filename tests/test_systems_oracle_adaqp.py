"""AdaQP equals its paper's equations, epoch by epoch, on random graphs: bits of a row chosen alike, draws
shared.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import adaqp
from tests.oracles import bytes as count
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings

KNOBS = {
    "bits, assignment": st.one_of(
        st.tuples(st.sampled_from([2, 4, 8]), st.just("uniform")),
        *2 * [st.tuples(st.integers(3, 7), st.just("adaptive"))],
    ),
    "period": st.integers(1, 4),
    "features": st.sampled_from(["refetch", "once"]),
}
CASES = {**RUNS, "model": st.sampled_from(OPERATORS)}


def both(pool, graph, knobs, parts, how):
    """The system's outcome and the oracle's history."""
    outcome = systems.run(pool, graph, systems.block("adaqp", **knobs), parts, settings=how)
    history = systems.history(
        adaqp.train,
        graph,
        outcome,
        how,
        systems.drawer(how.seed),
        bits=knobs["bits"],
        adaptive=knobs["assignment"] == "adaptive",
        period=knobs["period"],
        features=knobs["features"],
        model=how.model["name"],
        normalisation=how.model["normalisation"],
    )
    return outcome, history


@settings(max_examples=18)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(CASES))
def test_adaqp_equals_its_oracle(pool, knobs, run):
    name, normalisation = run["model"]
    bits, assignment = knobs["bits, assignment"]
    knobs = {"bits": bits, "assignment": assignment, "period": knobs["period"], "features": knobs["features"]}
    graph = random_graph(run["seed"], vertices=18, directed=run["directed"])
    how = Settings(
        model=systems.small(name, run["layers"], normalisation=normalisation),
        epochs=6,
        seed=run["seed"],
    )
    systems.assert_trained_alike(*both(pool, graph, knobs, run["parts"], how))


def test_bytes_are_those_of_the_bits_that_the_oracle_chooses(pool):
    """A row of B bits is B F / 8 bytes rounded up and two constants; where bits are chosen, one byte per row;
    once, the weights w.
    """
    graph, width = random_graph(12, vertices=40), 6
    how = Settings(
        model=systems.small("gcn", 3, width, normalisation="symmetric"),
        epochs=5,
    )
    outcome, history = both(
        pool, graph, dict(bits=4, assignment="adaptive", period=3, features="once"), 4, how
    )
    halo, constants = int(count.halo_rows(graph, outcome.assignment).sum()), 2 * 8
    for epoch in range(5):
        for layer in (1, 2):
            for way in ("forward", "backward"):
                chosen = [history.bits[epoch][layer, way, sender] for sender in range(4)]
                means = [worker["metrics"][epoch][layer, f"mean_bits_{way}"] for worker in outcome.workers]
                np.testing.assert_allclose(means, [bits.mean() for bits in chosen], rtol=1e-6)
                bits = np.concatenate(chosen)
                assert (
                    set(bits) <= {2, 4, 8} and len(bits) == halo and bits.mean() <= 4 and len(set(bits)) > 1
                )
                sent = {
                    purpose: size
                    for (l, d, purpose), (_, size) in outcome.sent(epoch).items()
                    if (l, d) == (layer, way)
                }
                assert sent["halo"] == sum(-(-b * width // 8) + constants for b in bits.tolist())
                weights = 8 * halo if (epoch, layer, way) == (0, 1, "backward") else 0
                assert sent.get("bits", 0) == (halo if epoch % 3 == 0 else 0) + weights
