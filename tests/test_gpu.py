"""On CUDA devices: the same training as on the CPU, with NCCL or staged through pinned memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.trace.reader import Trace, find_runs

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
ROOT = Path(__file__).resolve().parent.parent


def losses(folder: Path, *overrides: str) -> np.ndarray:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "harness",
            "dataset=twin/coauthor-physics",
            "dataset.scale=0.02",
            "model.dropout=0",
            "epochs=5",
            f"results={folder}",
            f"cache={folder}/cache",
            *overrides,
        ],
        cwd=ROOT,
        check=True,
    )
    epochs = Trace(find_runs([folder])[0]).epochs
    return epochs[epochs.worker == 0].loss.to_numpy()


@pytest.mark.parametrize("system", ["vanilla", "cagnet", "sancus"])
def test_workers_that_share_a_gpu_train_as_on_the_cpu(tmp_path, system):
    workers = torch.cuda.device_count() + 1
    cpu = losses(tmp_path / "cpu", f"system={system}", f"gpus={workers}", "device=cpu")
    gpu = losses(tmp_path / "gpu", f"system={system}", f"gpus={workers}", "device=cuda")
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU a worker needs two")
def test_one_gpu_a_worker_over_nccl(tmp_path):
    cpu = losses(tmp_path / "cpu", "system=vanilla", "gpus=2", "device=cpu")
    gpu = losses(tmp_path / "gpu", "system=vanilla", "gpus=2", "device=cuda")
    np.testing.assert_allclose(gpu, cpu, rtol=1e-3)
