"""Optimisers and schedules: the steps and rates of torch's own, for every worker and every optimiser of a
run, and the same after a stop.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core.schedules import Constant, Cosine, Schedule, Step
from harness.core.system import RunFacts
from harness.run import config
from systems.digest_a import DigestA
from tests import training
from tests.graphs import random_graph
from tests.test_identity import run_of

GRAPH = random_graph(40, 4, seed=2)
ADAM = {"_target_": "harness.core.optimisers.Adam", "lr": 0.02, "weight_decay": 0.001}
OPTIMISERS = {
    "adam": ADAM,
    "adamw": {**ADAM, "_target_": "harness.core.optimisers.AdamW", "weight_decay": 0.1},
    "sgd": {**ADAM, "_target_": "harness.core.optimisers.Sgd", "momentum": 0.9},
    "nesterov": {**ADAM, "_target_": "harness.core.optimisers.Sgd", "momentum": 0.8, "nesterov": True},
}
STEPS = {**OPTIMISERS, "amsgrad": {**OPTIMISERS["adamw"], "amsgrad": True}}
COSINE = {"_target_": "harness.core.schedules.Cosine", "warmup": 2}
SYSTEMS = {
    "vanilla": training.VANILLA,
    "llcg": {"_target_": "systems.llcg.Llcg", "server_lr": 0.05, "local_steps": 2, "batch": 5},
    "digest": {"_target_": "systems.digest.Digest", "aggregate": "weights", "interval": 2},
    "pipegcn": {"_target_": "systems.pipegcn.Pipegcn"},
}


def by_hand(name: str, gradients: list[np.ndarray], start: np.ndarray, lr: float, decay: float):
    """The weights after each step by the update rules as their papers print them."""
    w, first, second, most = start.copy(), *np.zeros((3, *start.shape))
    for t, g in enumerate(gradients, 1):
        if name in ("adam", "adamw", "amsgrad"):
            g = g + decay * w if name == "adam" else g
            w = w if name == "adam" else w * (1 - lr * decay)
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g
            most = np.maximum(most, second) if name == "amsgrad" else second
            w = w - lr * first / (1 - 0.9**t) / (np.sqrt(most / (1 - 0.999**t)) + 1e-8)
        else:
            g, momentum = g + decay * w, 0.9 if name == "sgd" else 0.8
            first = momentum * first + g if t > 1 else g
            w = w - lr * (g + momentum * first if name == "nesterov" else first)
        yield w


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_those_of_the_papers(name):
    rng = np.random.default_rng(5)
    gradients, start = list(rng.standard_normal((6, 7))), rng.standard_normal(7)
    made = config.make_optimiser(STEPS[name])
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimiser = made.make([weight], made.lr)
    for gradient, want in zip(gradients, by_hand(name, gradients, start, made.lr, made.weight_decay)):
        weight.grad = torch.from_numpy(gradient)
        optimiser.step()
        np.testing.assert_allclose(weight.detach().numpy(), want, rtol=1e-10)


@pytest.mark.parametrize(
    "system, name",
    sorted({*(("vanilla", name) for name in OPTIMISERS), *((each, "nesterov") for each in SYSTEMS)}),
)
def test_a_run_goes_on_bit_for_bit(pool, system, name):
    how = {"system": SYSTEMS[system], "optimiser": OPTIMISERS[name], "schedule": COSINE}
    whole = training.run(pool, GRAPH, 2, **how)
    assert training.same_bits(whole, training.run(pool, GRAPH, 2, **how, stop_at=3))
    others = {other for other in OPTIMISERS if other != name}
    different = training.run(pool, GRAPH, 2, **{**how, "optimiser": OPTIMISERS[min(others)]})
    assert not training.same_bits(whole, different), "the optimiser is used"


@pytest.mark.parametrize("system", ["vanilla", "llcg"])
def test_every_optimiser_of_a_run_follows_the_schedule(pool, system):
    """LLCG's server has one of its own, with a rate of its own."""
    for found in training.run(pool, GRAPH, 2, system=SYSTEMS[system], optimiser=ADAM, schedule=COSINE):
        shares = [Cosine(warmup=2).factor(epoch, 6) for epoch in range(6)]
        bases = [0.02, 0.05] if system == "llcg" else [0.02]
        assert found["rates"] == [[base * share for base in bases] for share in shares]
        assert shares[:2] == [0.5, 1.0] and shares[-1] < 0.5


def rates(schedule: Schedule, epochs: int) -> list[float]:
    return [schedule.factor(epoch, epochs) for epoch in range(epochs)]


@given(
    epochs=st.integers(1, 40),
    warmup=st.integers(0, 12),
    every=st.integers(1, 9),
    gamma=st.sampled_from([0.1, 0.5, 0.9]),
    floor=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_rates_are_those_of_torchs_schedulers(epochs, warmup, every, gamma, floor):
    after = max(epochs - warmup, 1)
    theirs = [
        (Constant(warmup), lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0, 0)),
        (Step(warmup, every, gamma), lambda o: torch.optim.lr_scheduler.StepLR(o, every, gamma)),
        (Cosine(warmup, floor), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, after, floor)),
    ]
    for ours, their in theirs:
        optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        scheduler, want = their(optimiser), []
        for _ in range(epochs - warmup):
            want.append(optimiser.param_groups[0]["lr"])
            optimiser.step()
            scheduler.step()
        found = rates(ours, epochs)
        assert found[:warmup] == [(epoch + 1) / warmup for epoch in range(min(warmup, epochs))]
        np.testing.assert_allclose(found[warmup:], want, rtol=1e-9, atol=1e-12)


def test_the_default_is_adam_at_a_constant_rate():
    run = run_of()
    assert run.composed["optimiser"] == {
        "_target_": "harness.core.optimisers.Adam", "lr": 0.01, "weight_decay": 0.0005
    }  # fmt: skip
    assert not run.scheduled and run_of("schedule=cosine").scheduled and run_of("schedule.warmup=3").scheduled
    for other in ("optimiser=adamw", "optimiser=sgd", "optimiser.lr=0.02", "schedule=step"):
        assert config.completed(run_of(other).composed) != config.completed(run.composed)


@pytest.mark.parametrize(
    "knobs, given, said",
    [
        ({}, {"optimiser": config.make_optimiser(OPTIMISERS["sgd"])}, "optimiser=adam"),
        ({}, {"scheduled": True}, "schedule=constant"),
        ({"update": "delta"}, {"scheduled": True}, "schedule=constant"),
        ({"update": "delta"}, {"optimiser": config.make_optimiser(OPTIMISERS["sgd"])}, None),
        ({}, {}, None),
    ],
)
def test_what_a_parameter_server_cannot_do_is_refused(knobs, given, said):
    facts = RunFacts(model="gcn", matrix=True, num_workers=2, symmetric=True, multilabel=False, **given)
    reason = DigestA(**knobs).supports(facts)
    assert reason is None if said is None else said in reason and "\n" not in reason


def test_the_command_takes_them_and_refuses_before_workers_start(place):
    done = place.run("optimiser=sgd", "optimiser.lr=0.05", "schedule=step", "epochs=2", "label=x")
    assert done.code == 0, done.err
    (run_dir,) = place.runs()
    assert config.stored(run_dir)["optimiser"]["momentum"] == 0.9
    refused = place.run("system=digest_a", "schedule=cosine", "epochs=2")
    assert refused.code == 2 and refused.err.startswith("error: system: digest_a has no epoch common")
