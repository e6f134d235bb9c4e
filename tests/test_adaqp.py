"""AdaQP: what it draws, and the bits that it assigns."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.splitmix import mix_int
from harness.core.draws import draw_with_torch, draws
from systems.adaqp import LEVELS, assign_bits


def test_every_message_of_every_epoch_has_draws_of_its_own_and_they_are_uniform():
    # the last the sender
    messages = itertools.product((0, 1, 7), (0, 1, 50), (0, 1, 2), ("forward", "backward"), (0, 1, 3))
    drawn = np.stack([draws(*message, (40, 5), torch.float64).numpy().ravel() for message in messages])
    # Of 24 bits, two independent messages share no value place by place but once in 2^24 / 200.
    assert all((drawn[k] == drawn[k + 1 :]).sum() < 5 for k in range(len(drawn)))
    assert drawn.min() >= 0 and drawn.max() < 1
    np.testing.assert_allclose(
        np.histogram(drawn, 10, (0, 1))[0] / drawn.size, 0.1, atol=6 * 0.3 / drawn.size**0.5
    )


@given(st.integers(0, 2**40), st.integers(0, 5), st.integers(0, 5), st.sampled_from(["float32", "float64"]))
def test_a_device_draws_the_same_bits_as_the_cpu(seed, rows, width, precision):
    dtype = getattr(torch, precision)
    want = draws(seed, 2, 1, "backward", 3, (rows, width), dtype)
    key = (((seed * 1_000_003 + 2) * 257 + 1) * 2 + 1) * 65_537 + 3
    found = draw_with_torch(mix_int(key & (2**64 - 1)), (rows, width), dtype, "cpu")
    assert found.dtype == dtype and found.equal(want)


@given(st.lists(st.floats(0, 100), max_size=6), st.sampled_from(LEVELS))  # a worker may send no row
def test_assigned_bits_keep_the_budget_and_nearly_minimise_the_variance(beta, mean):
    weights = torch.tensor(beta, dtype=torch.float64)
    bits = assign_bits(weights, mean)
    assert set(bits.tolist()) <= set(LEVELS) and int(bits.long().sum()) <= mean * len(beta)

    def cost(chosen):
        return float((weights / (2.0 ** torch.as_tensor(chosen, dtype=torch.float64) - 1) ** 2).sum())

    best = min(cost(c) for c in itertools.product(LEVELS, repeat=len(beta)) if sum(c) <= mean * len(beta))
    # Greedy leaves at most one upgrade unmade that a better packing would have had room for.
    assert cost(bits) <= best + max(beta, default=0) * ((2**2 - 1) ** -2 - (2**8 - 1) ** -2) + 1e-12
