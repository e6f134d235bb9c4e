"""CDFGNN equals its paper's equations, epoch by epoch, on random graphs and vertex-cuts: losses, weights,
eps, messages.
"""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests import systems
from tests.oracles import cdfgnn
from tests.oracles.samples import OPERATORS, RUNS, graph_of_kind, random_graph
from tests.systems import Settings
from tests.variants import REFETCH

COUNTS = ("sent", "saved", "zero", "possible")  # metrics, in rows


@st.composite
def knobs_of(draw) -> dict:
    knobs = {
        "cache": draw(st.sampled_from([True, True, True, False])),
        "quantise": draw(st.sampled_from([True, True, False])),
        "bits": draw(st.sampled_from([4, 8, 8, 2, 16])),
        "scatter": draw(st.sampled_from(["value", "diff", "fp32"])),
        "rule": draw(st.sampled_from(["prose", "literal"])),
        "features": draw(st.sampled_from(["refetch", "once"])),
        "epsilon": draw(st.sampled_from([0.001, 0.01, 0.05, 0.1, 0.3])),
    }
    # Steps large enough to be felt within a few epochs, and limits that are met.
    if draw(st.booleans()):
        knobs |= {
            "xi": 0.04,
            "mu1": 0.01,
            "mu2": 0.005,
            "nu1": 0.32,
            "lambda1": 1.3,
            "lambda2": 0.6,
            "momentum": 0.5,
        }
    return knobs


def assert_as_many_messages(outcome, want: cdfgnn.CdfgnnHistory) -> None:
    """The same rows are sent in every synchronisation; metrics say how many, and why the others are not."""
    for epoch, messages in enumerate(want.messages[: want.certain]):
        sent, metrics = outcome.sent(epoch), [worker["metrics"][epoch] for worker in outcome.workers]
        for (layer, way), expected in messages.items():
            gathered, scattered = (
                sent.get((layer, way, phase), (0, 0))[0] for phase in ("gather", "scatter")
            )
            assert expected.gathered[0] <= gathered <= expected.gathered[1], (epoch, layer, way)
            assert expected.scattered[0] <= scattered <= expected.scattered[1], (epoch, layer, way)
            told = {name: sum(m[layer, f"{name}_{way}"] for m in metrics) for name in COUNTS}
            assert told["sent"] == gathered + scattered and told["possible"] == expected.possible
            assert expected.zeros[0] <= told["zero"] <= expected.zeros[1], (epoch, layer, way)
            assert told["sent"] + told["saved"] + told["zero"] == told["possible"]
        assert sum(name == "sent_forward" for _, name in metrics[0]) == sum(
            way == "forward" for _, way in messages
        )


def assert_as_one(outcome, want: cdfgnn.CdfgnnHistory, cache: bool = True) -> None:
    """Losses, weights, messages and eps; only the epochs in which rounding decides nothing."""
    n = want.certain
    assert len(outcome.losses) == len(want.losses)
    systems.assert_trained_alike(
        replace(outcome, losses=outcome.losses[:n], weights=outcome.weights[: n + 1]),
        replace(want, losses=want.losses[:n], weights_after=want.weights_after[:n]),
    )
    assert_as_many_messages(outcome, want)
    if cache:
        for worker in outcome.workers:
            np.testing.assert_allclose(
                [m[-1, "epsilon"] for m in worker["metrics"][:n]], want.epsilon[:n], rtol=1e-12
            )


@examples(max_examples=14)
@given(
    operator=st.sampled_from(OPERATORS),
    knobs=knobs_of(),
    method=st.sampled_from(["ebv", "hep", "dne", "metis/edges"]),
    kind=st.sampled_from(["plain", "multilabel", "weighted"]),
    **RUNS,
)
def test_cdfgnn_equals_its_oracle(pool, operator, knobs, method, kind, seed, parts, directed, layers):
    graph, (model, normalisation) = graph_of_kind(kind, seed, directed), operator
    shape = systems.small(model, layers, normalisation=normalisation)
    settings = Settings(model=shape, epochs=8, seed=seed % 100)
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), parts, method, settings)
    knobs |= {"model": model, "normalisation": normalisation}
    want = systems.history(cdfgnn.train, graph, outcome, settings, **knobs)
    if not (knobs["cache"] and knobs["quantise"] and knobs["scatter"] == "diff"):
        assert want.certain == settings.epochs
    assert_as_one(outcome, want, knobs["cache"])


def test_the_share_of_messages_and_the_threshold_over_a_longer_run(pool):
    """Long enough that the cache saves most messages, and that eps went up and down."""
    graph = random_graph(8, vertices=40, directed=False)
    knobs = {"epsilon": 0.05, "mu2": 0.005, **REFETCH}
    settings = Settings(model=systems.small("gcn", 2, 6), epochs=40)
    outcome = systems.run(pool, graph, systems.block("cdfgnn", **knobs), 4, settings=settings)
    want = systems.history(cdfgnn.train, graph, outcome, settings, **knobs)
    assert want.certain == settings.epochs
    assert_as_one(outcome, want)
    steps = np.diff(want.epsilon)
    assert (steps > 0).any() and (steps < 0).any(), "eps moves one way only: the case tests little"
    counts = [sum(m.gathered[0] + m.scattered[0] for m in messages.values()) for messages in want.messages]
    assert min(counts) < 0.5 * counts[0], "the cache saves little: the case tests little"
    last = [messages[1, "backward"] for messages in want.messages]
    assert all(m.zeros[0] == m.zeros[1] > 0.5 * m.possible for m in last), "delta is 0 off training masters"
