"""Dropout by hash: rate, scale, gradient, keys, and independence of partition, thread count and device
path.
"""

import itertools

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.core.dropout import LEVELS, dropout, dropout_key


def ids_of(rows):
    return torch.arange(rows, dtype=torch.int32)


@pytest.mark.parametrize("p", [0.1, 0.9])
def test_rate_and_scale(p):
    kept = dropout(torch.ones(2000, 203), ids_of(2000), p, key=7)
    rate = (kept != 0).float().mean().item()
    assert abs(rate - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.numel())
    scale = LEVELS / (LEVELS - round(p * LEVELS))
    assert torch.equal(kept[kept != 0], torch.full_like(kept[kept != 0], scale))
    assert abs(scale - 1 / (1 - p)) < 1e-3


def test_any_number_of_threads_gives_the_same_bits():
    x, ids = torch.randn(2001, 41), ids_of(2001)
    before, results = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(dropout(x, ids, 0.3, key=1))
    torch.set_num_threads(before)
    assert torch.equal(*results)


def test_gradient_uses_the_same_mask():
    x = torch.randn(30, 17, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: dropout(x, ids_of(30), 0.5, 9), x)


def test_rows_columns_and_keys_look_independent():
    def mask(key):
        return (dropout(torch.ones(4096, 256), ids_of(4096), 0.5, key) != 0).double() * 2 - 1

    first = mask(1)
    # Correlations of n fair signs have deviation 1 / sqrt(n); the largest of 2^15 pairs stays below 6 of
    # them.
    columns = (first.T @ first / 4096).fill_diagonal_(0)
    rows = (first[:256] @ first[:256].T / 256).fill_diagonal_(0)
    assert columns.abs().max() < 6 / 64 and rows.abs().max() < 6 / 16
    for key in (0, 2, 1 << 32, (1 << 32) + 1):
        assert abs((first * mask(key)).mean()) < 6 / 1024


def test_every_seed_epoch_layer_and_step_has_a_key_of_its_own():
    """Beyond the bits that each has in the key too. A full batch's is what it always was."""
    seeds, epochs = (0, 1, 2, 255, 70_000, 1 + 2**24), (0, 1, 2, 999, 100_000, 2**20)
    some = list(itertools.product(seeds, epochs, (0, 1, 2, 9, 128), (0, 1, 2, 300, 2**12)))
    keys = {dropout_key(*which) for which in some}
    assert len(keys) == len(some) and all(0 <= key < 2**63 for key in keys)
    assert dropout_key(1, 2, 3) == (1 << 39) ^ (2 << 19) ^ 3


def test_zero_is_the_identity_and_one_is_refused():
    x = torch.randn(3, 3)
    assert dropout(x, ids_of(3), 0.0, 1) is x
    for p in (1.0, -0.1):
        with pytest.raises(InputError, match="dropout="):
            dropout(x, ids_of(3), p, 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_the_same_bits():
    x, ids = torch.randn(500, 41), ids_of(500)
    assert torch.equal(dropout(x.cuda(), ids.cuda(), 0.4, 5).cpu(), dropout(x, ids, 0.4, 5))
