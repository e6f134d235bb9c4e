"""What every system must hold, whoever wrote it. Each check is over a small graph and pooled workers; the
fixtures are the plugin's."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.core.cuts import check_cut
from harness.core.mixins import AsynchronousSystem
from harness.core.system import Ready, ReplicaSystem, System
from harness.dev.conformance import dense, runs
from harness.dev.conformance.runs import Settings
from harness.dev.conformance.subject import MODELS
from harness.run.config import make_system

SMALL = {"vertices": 40, "classes": 3, "features": 5, "degree": 6, "train_each": 4}
OTHER = {"edge": "vertex", "vertex": "edge"}


@dataclass
class NoRemoteRows(System):
    """The control: every remote row is 0."""

    role: ClassVar[str] = "control"

    def halo(self, layer, h):
        return Ready(h.new_zeros(self.plan.num_halo, h.shape[1]))

    def input_halo(self, x):
        return x.new_zeros(self.plan.num_halo, x.shape[1])


CONTROL = {"_target_": f"{__name__}.NoRemoteRows"}


def same_bits(one, other) -> bool:
    """Whether two runs have equal losses and equal weights in every epoch."""
    return one.losses == other.losses and all(
        np.array_equal(mine[name], theirs[name])
        for mine, theirs in zip(one.weights, other.weights)
        for name in mine
    )


def synchronous(checked):
    if isinstance(checked.system, AsynchronousSystem):
        pytest.skip("its updates arrive as they do: no two runs are alike")


@pytest.fixture(scope="module")
def dropping(checked):
    """A model with dropout."""
    return {"name": "gcn", "layers": checked.layers, "hidden": 5, "dropout": 0.4}


@pytest.fixture(scope="module")
def once(checked, workers, dropping):
    """A run with dropout over three workers."""
    settings = Settings(model=dropping, dtype="float32", epochs=8)
    return runs.run(
        workers, runs.planted_graph(1, **SMALL), checked.block, 3, settings=settings, job=runs.train_watched
    )


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("model", dense.MODELS)
def test_at_its_exact_knob_it_is_full_graph_training(checked, workers, model, parts):
    """Losses and weights of every epoch are those of one dense computation."""
    if checked.exact is None:
        pytest.skip("it names no knob at which it is exact: give the class exact = {KNOB: VALUE}")
    if reason := checked.refusal(model):
        pytest.skip(reason)
    graph = runs.planted_graph(1, **SMALL)
    shape = {"name": model, "layers": checked.layers, "hidden": 4, "dropout": 0.0}
    settings = Settings(model=shape, epochs=4)
    found = runs.run(workers, graph, checked.exact, parts, settings=settings)
    losses, weights = dense.train(graph, found.weights[0], model, settings.epochs, **settings.optimiser)
    np.testing.assert_allclose(found.losses, losses, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(found.weights[-1][name], value, rtol=1e-5, atol=1e-8, err_msg=name)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(checked, workers, once, dropping):
    synchronous(checked)
    graph = runs.planted_graph(1, **SMALL)
    settings = Settings(model=dropping, dtype="float32", epochs=8, scored="every epoch")
    assert same_bits(once, runs.run(workers, graph, checked.block, 3, settings=settings)), (
        "two runs of one seed differ, or an evaluation changed what was trained"
    )
    settings = Settings(model=dropping, dtype="float32", epochs=1, seed=4)
    assert runs.run(workers, graph, checked.block, 3, settings=settings).losses != once.losses[:1]


def test_a_stopped_run_goes_on_bit_for_bit(checked, workers, once, dropping):
    synchronous(checked)
    settings = Settings(model=dropping, dtype="float32", epochs=8, stop_at=5)
    resumed = runs.run(workers, runs.planted_graph(1, **SMALL), checked.block, 3, settings=settings)
    assert same_bits(once, resumed), (
        "state_dict() lacks something that the epochs after a stop depend on, or load_state_dict() loses it"
    )
    for mine, theirs in zip(once.workers, resumed.workers):
        assert theirs["sent"] == mine["sent"], "a run that goes on sends something again, or leaves it out"


def test_every_byte_is_counted(once):
    """What the training thread sends is in the trace; what goes past it is an error (`Watched.alone`)."""
    for rank, worker in enumerate(once.workers):
        for epoch, sent in enumerate(worker["sent"]):
            counted = sum(size for _, size in sent.values())
            handed = worker["handed"].get(epoch, 0)
            assert counted >= handed, f"epoch {epoch}, worker {rank}: {handed} bytes sent, {counted} counted"


def test_it_uses_remote_rows(checked, workers):
    """On graphs whose vertices say little by themselves it beats the control, whose remote rows are 0."""
    if checked.system.role == "control":
        pytest.skip("it is a control: it uses no remote rows, and says so")
    if checked.system.degrees == "local":
        pytest.skip("it drops cut edges (degrees = local): of this check it tells nothing")
    how = Settings(
        model={"name": "gcn", "layers": 2, "hidden": 16, "dropout": 0.0},
        optimiser={"lr": 0.015, "weight_decay": 5e-4},
        dtype="float32",
        epochs=30,
    )
    graphs = [runs.planted_graph(seed) for seed in range(3)]
    accuracy, control = (
        np.mean([runs.run(workers, graph, block, 4, settings=how).scores[-1][2] for graph in graphs])
        for block in (checked.block, CONTROL)
    )
    assert accuracy > control, (
        f"test accuracy {accuracy:.3f}, the control's {control:.3f}: it uses none of the rows that it has"
    )


@pytest.mark.parametrize("model", MODELS)
def test_it_trains_a_model_or_refuses_it_in_a_sentence(checked, workers, model):
    reason = checked.refusal(model)
    if reason is not None:
        assert reason.strip() and "\n" not in reason and "give " in reason, (
            f"supports() must say in one sentence why, and what to give instead: {reason!r}"
        )
        return
    heads = {"heads": 2} if model == "gat" else {}
    settings = Settings(model={"name": model, "layers": 2, "hidden": 4, "dropout": 0.0, **heads}, epochs=2)
    found = runs.run(workers, runs.planted_graph(1, **SMALL), checked.block, 2, settings=settings)
    assert np.isfinite(found.losses).all()


def test_it_refuses_partitions_of_the_other_kind_and_knobs_that_it_lacks(checked):
    own = "vertex" if isinstance(checked.system, ReplicaSystem) else "edge"
    assert checked.system.cut == own
    with pytest.raises(InputError, match=f"-cut and .* trains on an? {own}-cut: give partition="):
        check_cut(checked.system, OTHER[own], "this partition is")
    with pytest.raises(InputError, match=r"system\.no_such_knob is not a key of"):
        make_system({**checked.block, "no_such_knob": 1})
