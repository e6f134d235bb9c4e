"""The oracle of PipeGCN against the closed form of what a reader and an owner get."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import pipegcn
from tests.oracles.samples import DEEP, random_blocks, random_graph, random_weights


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    staleness=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.5, 0.95]),
    features=st.sampled_from(["once", "refetch"]),
)
def test_what_is_used_is_what_was_sent_that_many_epochs_ago(seed, parts, staleness, momentum, features):
    graph, weights = random_graph(seed), random_weights(seed, widths=DEEP)
    run = pipegcn.train(
        graph,
        random_blocks(seed, graph.num_vertices, parts),
        weights,
        staleness=staleness,
        features=features,
        smooth_features=True,
        smooth_gradients=True,
        momentum=momentum,
        epochs=6,
        lr=0.05,
    )
    for t in range(6):
        for l in range(3):
            if l == 0 and features == "once":
                np.testing.assert_array_equal(run.used[t][0], graph.features)
                continue
            # the closed form of the moving average from zeros: Σ_i (1 - m) m^i received_{t-i}
            ages = range(t - staleness + 1)
            for received, got in ((run.inputs, run.used), (run.sent, run.arrived)):
                if got[t][l] is not None:
                    want = sum((1 - momentum) * momentum**i * received[t - staleness - i][l] for i in ages)
                    np.testing.assert_allclose(got[t][l], want, atol=1e-12)
