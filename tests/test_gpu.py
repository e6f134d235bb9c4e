"""On CUDA devices: every system trains as on the CPU, with dropout, over NCCL or staged through pinned
memory, and a run that goes on from a checkpoint is the run that was never stopped.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.core.architectures import Gcn
from harness.dev.bench import gpu
from harness.results import resolved
from harness.results.reader import Trace, find_runs
from harness.results.schema import PEAK_ALLOCATED, PEAK_RESERVED
from tests import gpu_session
from tests.graphs import random_graph
from tests.systems import VARIANTS

GPUS = torch.cuda.device_count()
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no CUDA device; docs/gpu.md says what is tested instead"),
]
over_nccl = [
    *on_gpu,
    pytest.mark.skipif(GPUS < 2, reason=f"NCCL needs a GPU for each of 2 workers, and there are {GPUS}"),
]
# On each kind: as many workers as share GPUs, or as have one each.
PLACES = [
    pytest.param(GPUS + 1, "sockets", marks=on_gpu, id="shared"),
    pytest.param(2, "nccl", marks=over_nccl, id="nccl"),
]
ROOT = Path(__file__).resolve().parent.parent
# What `runs extend` cannot do for such systems.
NOT_EXTENDED = ("its system is asynchronous", "follows the number of epochs of the whole run")
# Knobs without which two runs of a system need not be the same.
ORDERED = {"digest_a": ["system.order=rotation"]}


def trained(folder: Path, system: str, *words: str) -> Path:
    """The folder of a finished run."""
    given = [
        "dataset=twin/coauthor-physics",
        "dataset.scale=0.02",
        "model.dropout=0.5",
        "kernel=torch",
        "threads=1",
        "epochs=6",
        "checkpoint_every=3",
        "progress=false",
        f"results={folder}",
        f"cache={folder.parent}/cache",
        *ORDERED.get(system, []),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "harness", f"system={system}", *given, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return find_runs([folder])[0]


def losses(run_dir: Path) -> np.ndarray:
    epochs = Trace(run_dir).epochs
    return epochs[epochs.worker == epochs.worker.min()].loss.to_numpy()


@pytest.mark.parametrize("workers, carrier", PLACES)
@pytest.mark.parametrize("system", sorted(VARIANTS))
def test_a_system_trains_as_on_the_cpu_and_goes_on_as_if_it_was_never_stopped(
    tmp_path, system, workers, carrier
):
    words = (f"workers={workers}", "keep_checkpoint=true")
    cpu = trained(tmp_path / "cpu", system, *words, "device=cpu")
    there = trained(tmp_path / "gpu", system, *words, "device=cuda")
    (attempt,) = resolved.read(there)["attempts"]
    assert attempt["device"] == "cuda" and (attempt["transport"] == "nccl") == (carrier == "nccl")
    # Sums are in another order there: what is rounded or compared with a bound may fall otherwise later on.
    np.testing.assert_allclose(losses(there)[:2], losses(cpu)[:2], rtol=1e-3)
    np.testing.assert_allclose(losses(there), losses(cpu), rtol=0.05)
    metrics = Trace(there).metrics
    peaks = {name: metrics[metrics["name"] == name].value for name in (PEAK_ALLOCATED, PEAK_RESERVED)}
    assert len(peaks[PEAK_ALLOCATED]) == len(peaks[PEAK_RESERVED]) >= 6 * workers
    short = trained(tmp_path / "short", system, *words, "device=cuda", "epochs=3")
    more = ("epochs=6", f"cache={tmp_path}/cache")
    asked = [sys.executable, "-m", "harness", "runs", "extend", str(short), *more]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 2 and any(why in done.stderr for why in NOT_EXTENDED):
        return  # a system whose epochs follow their number, or without a barrier
    assert done.returncode == 0, done.stderr
    (longer,) = (path for path in find_runs([tmp_path / "short"]) if len(losses(path)) == 6)
    # Not to the bit: some of CUDA's sums are in an order that differs from run to run.
    np.testing.assert_allclose(losses(longer), losses(there), rtol=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_the_bench_has_ratios_to_its_peers_or_says_why_not(device):
    graph = random_graph(300, 12, num_features=20, num_classes=4, seed=1)
    model = Gcn(layers=2, hidden=8, dropout=0.0)
    found = [line for line in gpu.gpu_lines(graph, model, 2, torch.device(device)) if line.unit == "s"]
    there = {line.name.split(" / ")[1] for line in found if line.peer is not None}
    absent = {line.name for line in found if line.peer is None}
    assert (
        there | absent == {"PyG, torch.sparse CSR", "PyG, edge_index", "DGL", "floor"} and not there & absent
    )
    assert {"PyG, edge_index", "floor"} <= there and all(
        line.ratio > 0 for line in found if line.peer is not None
    )
    assert all(len(line.samples) == 2 for line in found if line.peer is not None)


def test_the_bench_says_where_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (line,) = gpu.gpu_lines(random_graph(30, 3), Gcn(), 1)
    assert line.met is None and "no CUDA device is visible" in line.note


def test_a_session_says_of_each_command_how_it_ended(tmp_path, monkeypatch):
    """One that takes too long is asked where it is."""
    asked = {step.name: step.words for step in gpu_session.steps("cuda", tmp_path)}
    assert {f"run-{system}" for system in VARIANTS} < asked.keys() and "device=cuda" in asked["run-vanilla"]
    code = "import sys; print('time 0.1 s'); print('more'); sys.exit(int(sys.argv[1]))"
    made = [gpu_session.Step("runs", f"run-{n}", (sys.executable, "-c", code, n)) for n in ("0", "3")]
    slow = ("sh", "-c", "trap 'echo so far; exit' INT; echo began; while :; do sleep 0.1; done")
    made += [gpu_session.Step("scale", "scale", slow), gpu_session.Step("bench", "bench", ("not-run",))]
    monkeypatch.setattr(gpu_session, "steps", lambda device, out: made)
    monkeypatch.setitem(gpu_session.SECONDS, "scale", 1)
    assert gpu_session.main(["runs", "scale", "--device", "cpu", "--out", str(tmp_path)]) == 1
    said = (tmp_path / "summary.md").read_text()
    assert "exit code 0" in said and "exit code 3" in said and "bench" not in said
    assert "exit code none in time" in said and "    began\n    so far" in said
