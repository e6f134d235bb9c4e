"""Dropout by hash: rate, scale, gradient, keys, and independence of partition, thread count and device path.
On a device: the operation that PyTorch gives to it, Triton's kernel for GPUs, and what takes its place where
it cannot be used.

Triton comes with torch's wheels for GPUs. Where it is installed without a GPU, its interpreter runs the
kernel on the CPU, and its compiler makes the machine code of two kinds of GPU.
"""

import importlib.util
import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.base.splitmix import mix_int
from harness.core.dropout import LEVELS, dropout, dropout_key
from harness.core.kernels.dropout_device import drop_on_device, drop_with_torch, kernel
from tests.launching import fresh_python


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


# -- on a device --

triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="Triton is not installed; it comes with torch for GPUs, and for Linux by pip install triton",
)


MODULE = "harness.core.kernels.dropout_triton"
found_anew = kernel.__wrapped__  # which is found once per process


def arguments(key: int, p: float) -> tuple[int, int, float]:
    threshold = round(p * LEVELS)
    return mix_int(key), threshold, LEVELS / (LEVELS - threshold)


@pytest.mark.parametrize("width", [1, 41, 130])
@pytest.mark.parametrize("key", [0, 2**63 + 11])
def test_the_operation_and_torchs_operations_have_the_bits_of_dropout(width, key):
    x, ids = torch.randn(64, width), (torch.arange(64) * 33_000_001).int()
    given = arguments(key, 0.4)
    assert torch.equal(drop_on_device(x, ids, *given), dropout(x, ids, 0.4, key))
    for rows in (x, x.double()):
        assert torch.equal(drop_with_torch(rows, ids, *given), dropout(rows, ids, 0.4, key))


@pytest.mark.parametrize("wrong, reason", [
    (None, f"import of {MODULE} halted; None in sys.modules"),
    (lambda x, *_: x, "its bits differ from those of torch's operations"),
])  # fmt: skip
def test_without_the_kernel_torchs_operations_drop_and_a_warning_says_why(monkeypatch, wrong, reason):
    monkeypatch.setitem(sys.modules, MODULE, wrong and SimpleNamespace(drop_rows=wrong))
    with pytest.warns(UserWarning, match="takes some twenty kernels instead of one") as said:
        assert found_anew(torch.device("cpu")) is drop_with_torch
    assert reason in str(said[0].message)


def test_a_kernel_with_the_same_bits_is_taken(monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(drop_rows=drop_on_device))
    assert found_anew(torch.device("cpu")) is drop_on_device


INTERPRETED = """
import torch
from harness.core.kernels.dropout_device import drop_with_torch, kernel
from harness.core.kernels.dropout_triton import drop_rows
assert kernel(torch.device("cpu")) is drop_rows
for rows, width in ((1, 1), (64, 4), (65, 41), (16, 64), (17, 65), (5, 130), (0, 8), (8, 0)):
    x, ids = torch.randn(rows, width), (torch.arange(rows) * 33_000_001).int()
    for base, threshold in ((0, 1), (1 << 63, 26214), (2**64 - 1, 65535)):
        given = x, ids, base, threshold, 65536 / (65536 - threshold)
        assert torch.equal(drop_rows(*given), drop_with_torch(*given)), (rows, width, base, threshold)
columns = torch.randn(41, 64).t()
given = columns, torch.arange(64).int(), 7, 32768, 2.0
assert torch.equal(drop_rows(*given), drop_with_torch(*given)), "rows that do not lie together"
print("alike")
"""


@triton
def test_tritons_kernel_has_the_same_bits_in_its_interpreter():
    done = fresh_python(INTERPRETED, TRITON_INTERPRET="1", PYTHONWARNINGS="ignore")
    assert done.stdout == "alike\n", done.stderr


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from harness.core.kernels.dropout_triton import COLUMNS, ROWS, _drop_tile
types = ["*fp32", "*i32", "*fp32", "i32", "i32", "i64", "i32", "fp32", "constexpr", "constexpr"]
signature, sizes = dict(zip(_drop_tile.arg_names, types)), {"ROWS": ROWS, "COLUMNS": COLUMNS}
source = ASTSource(_drop_tile, signature=signature, constexprs=sizes)
for capability in (80, 90):
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    print(len(made.asm["cubin"]) > 0, "div" in made.asm["ptx"])
"""


@triton
def test_tritons_kernel_is_compiled_for_gpus_without_a_division_per_entry(tmp_path):
    done = fresh_python(COMPILED, TRITON_CACHE_DIR=str(tmp_path), PYTHONWARNINGS="ignore")
    assert done.stdout == "True False\n" * 2, done.stderr
