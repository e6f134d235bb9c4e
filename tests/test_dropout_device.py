"""Dropout on a device: the operation that PyTorch gives to it, Triton's kernel for GPUs, and what takes its
place where it cannot be used.

Triton comes with torch's wheels for GPUs. Where it is installed without a GPU, its interpreter runs the
kernel on the CPU, and its compiler makes the machine code of two kinds of GPU.
"""

import importlib.util
import sys
from types import SimpleNamespace

import pytest
import torch

from harness.base.splitmix import mix_int
from harness.core.dropout import LEVELS, dropout
from harness.core.kernels.dropout_device import drop_on_device, drop_with_torch, kernel
from tests.launching import fresh_python

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
