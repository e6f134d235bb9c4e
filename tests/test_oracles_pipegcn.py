"""The oracle of PipeGCN against the closed form of what a reader and an owner get; that of Sylvie against
that of PipeGCN, and its period."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import pipegcn, sylvie
from tests.oracles.samples import CASES, OPERATORS, assert_same_run, case, draw, random_weights


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    staleness=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.5, 0.95]),
    features=st.sampled_from(["once", "refetch"]),
)
def test_what_is_used_is_what_was_sent_that_many_epochs_ago(seed, parts, staleness, momentum, features):
    data, how = case(seed, parts, features=features, staleness=staleness, momentum=momentum)
    run = pipegcn.train(*data, smooth_features=True, smooth_gradients=True, **how)
    for t in range(how["epochs"]):
        for l in range(3):
            if l == 0 and features == "once":
                np.testing.assert_array_equal(run.used[t][0], data[0].features)
                continue
            # the closed form of the moving average from zeros: Σ_i (1 - m) m^i received_{t-i}
            ages = range(t - staleness + 1)
            for received, got in ((run.inputs, run.used), (run.sent, run.arrived)):
                if got[t][l] is not None:
                    want = sum((1 - momentum) * momentum**i * received[t - staleness - i][l] for i in ages)
                    np.testing.assert_allclose(got[t][l], want, atol=1e-12)


@settings(max_examples=8)
@given(**CASES)
def test_with_fine_rows_and_no_period_it_is_pipegcn(seed, parts, operator, features):
    data, how = case(seed, parts, operator, features=features)
    assert_same_run(
        sylvie.train(*data, draw, bits=48, period=0, **how), pipegcn.train(*data, **how), rtol=1e-8
    )


def test_rows_are_of_this_epoch_where_the_period_says_so_and_else_of_the_one_before():
    """With weights that never change and one quantised layer, losses differ by the draws of its rows."""
    (graph, blocks, _), how = case(3, 3, OPERATORS[0])
    how |= {"lr": 0.0, "epochs": 7}

    def losses(draw, **knobs):
        return sylvie.train(graph, blocks, random_weights(3), draw, bits=4, **knobs, **how).losses

    used = [0, 0, 1, 3, 3, 4, 6]
    want = losses(lambda epoch, *rest: draw(used[epoch], *rest), mode="synchronous")
    np.testing.assert_allclose(losses(draw, period=3), want, rtol=1e-10)
    assert len(set(np.round(want, 9))) == len(set(used))
