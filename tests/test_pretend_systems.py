"""Every system on the pretended GPU: it trains as on the CPU, goes on from a checkpoint, and stays within its
budget of waits, launches and collectives.
"""

import functools
import json

import numpy as np
import pandas as pd
import pytest

from harness.dev.conformance.pool import MEMORY
from tests import systems
from tests.launching import losses
from tests.pretend.budget import BUDGET, CEILING, cost_of
from tests.pretend.training import CASES, EPOCHS, MODELS, Trained, trained

# In every run of the suite; the rest at night.
OFTEN = {
    ("cdfgnn", "gcn", "nccl"),
    ("digest", "gcn", "staged"),
    ("pipegcn", "gcn", "nccl"),
    ("pscgcn", "gcn", "nccl"),
    ("sancus", "sage", "nccl"),
    ("vanilla", "gat", "nccl"),
    ("vanilla", "gcn", "nccl"),
}
RUNS = [
    pytest.param(*run, id="-".join(run), marks=[] if run in OFTEN else pytest.mark.nightly(6))
    for run in (
        (name, model, where)
        for name in CASES
        for model in MODELS
        if model in systems.models_of(CASES[name][0])
        for where in ("nccl", "staged")
    )
]
BUDGETED = [
    pytest.param(name, marks=[] if (name, "gcn", "nccl") in OFTEN else pytest.mark.nightly(6))
    for name in CASES
]


@pytest.fixture(scope="module")
def stopped(pool):
    """Runs on the device that were stopped and went on, each made once: (name, model, where) -> Trained."""
    return functools.cache(lambda name, model, where: trained(pool, name, model, where, stopped=True))


def assert_alike(run: Trained, cpu: Trained, model: str) -> None:
    # Attention has a kernel of its own on the CPU, and NCCL an order of its own for sums of more than two.
    if model == "gat" or (run.carrier == "nccl" and len(run.tallies) > 2):
        np.testing.assert_allclose(run.losses, cpu.losses, rtol=1e-5)
        np.testing.assert_allclose(run.scores, cpu.scores, atol=0.1)
    else:
        assert (run.losses, run.scores) == (cpu.losses, cpu.scores)


@pytest.mark.parametrize("name,model,where", RUNS)
def test_stopped_and_resumed_on_the_device_equals_the_cpu(pool, stopped, name, model, where):
    run = stopped(name, model, where)
    assert run.carrier == ("nccl" if where == "nccl" else MEMORY)
    assert len(set(run.losses)) == EPOCHS and all(run.tallies), "it learns, and on the device"
    assert_alike(run, trained(pool, name, model, "cpu"), model)


@pytest.mark.parametrize("name", BUDGETED)
def test_an_epoch_asks_for_no_more_than_its_budget(stopped, name):
    run = stopped(name, "gcn", "nccl")
    # A resumed run must not wait for state that was on the host before: Adam's number of steps.
    for cost in (cost_of(run), cost_of(run, resumed=True)):
        for kind, number, most in zip(cost._fields, cost, BUDGET.get(name, CEILING)):
            assert number <= most, f"{number} {kind} in an epoch: python -m tests.pretend --lines {name}"
    assert cost_of(run).launches and cost_of(run).synchronisations


def test_rows_of_two_bytes_travel_between_devices_as_between_cpus(pool, stopped):
    half = trained(pool, "vanilla", wire="bfloat16").losses
    assert half == trained(pool, "vanilla", where="cpu", wire="bfloat16").losses
    assert half != stopped("vanilla", "gcn", "nccl").losses


@pytest.mark.parametrize("name", ["vanilla", "cdfgnn"])
def test_cpu_seconds_of_every_segment_are_those_of_both_threads(stopped, name):
    """The backward pass runs on another thread than the rest, whose CPU clock says something else."""
    segments = stopped(name, "gcn", "nccl").cpu
    assert min(seconds for _, seconds in segments) >= 0
    for what in ("forward", "backward"):
        assert sum(seconds for name, seconds in segments if name == what) > 0


@pytest.mark.nightly(60)
@pytest.mark.parametrize("gpus,carrier", [(2, "nccl"), (1, MEMORY)])
def test_the_command_trains_on_gpus_and_goes_on_from_its_checkpoint(place, gpus, carrier):
    """One GPU for each worker, or one for both; the checkpoint is that of a run which is extended."""
    asked = ["system=pipegcn", "kernel=torch", "keep_checkpoint=true"]
    assert place.run(*asked, "device=cpu").code == 0
    (on_cpu,) = place.runs()

    def on_gpus(*arguments: str) -> None:
        done = place.truly("-m", "tests.pretend.command", str(gpus), *arguments)
        assert done.returncode == 0, done.stderr

    on_gpus(*place.arguments(*asked, "device=cuda", "epochs=4"))
    (stopped,) = (run for run in place.runs() if run != on_cpu)
    on_gpus("runs", "extend", str(stopped), "epochs=6", f"cache={place.folder / 'cache'}")
    (extended,) = (run for run in place.runs() if run != on_cpu and len(losses(run)) == 2 * 6)
    pd.testing.assert_frame_equal(losses(extended), losses(on_cpu))
    attempts = json.loads((extended / "resolved.json").read_text())["attempts"]
    assert {each["device"] for each in attempts} == {"cuda"}
    assert {each["transport"] for each in attempts} == {carrier}
