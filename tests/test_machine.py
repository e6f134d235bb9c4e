"""What the operating system tells of the processor."""

import numpy as np
import pytest

from harness.base import machine
from harness.core.kernels import dgl_kernel
from harness.data.partition.shard import Csr


def caches(folder, *sizes):
    for number, (kind, level, size) in enumerate(sizes):
        index = folder / f"index{number}"
        index.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (index / name).write_text(f"{text}\n")
    return folder


def test_the_size_of_a_data_cache(tmp_path):
    found = caches(tmp_path, ("Instruction", 1, "64K"), ("Data", 1, "48K"), ("Unified", 3, "32768K"))
    assert machine.cache_bytes(1, found) == 48 << 10 and machine.cache_bytes(3, found) == 32 << 20
    assert machine.cache_bytes(2, found) == 0 and machine.cache_bytes(1, tmp_path / "none") == 0


@pytest.mark.parametrize(("cache", "dies"), [(8 << 20, True), (512 << 20, False)])
def test_what_dgl_is_kept_from_follows_the_last_level_cache(monkeypatch, cache, dies):
    monkeypatch.setattr(dgl_kernel, "cache_bytes", lambda level: cache if level == 3 else 0)
    degree, rows = 100, 50
    indices = np.tile(np.arange(degree, dtype=np.int32), rows)
    block = Csr(np.arange(rows + 1, dtype=np.int32) * degree, indices, degree)
    assert dgl_kernel.dies(block, width=64) == dies  # 4000 * 64 * 100 = 25.6 million
