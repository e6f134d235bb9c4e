"""Optimisers and schedules: the steps and rates of torch's own, for every worker and every optimiser of a
run, and the same after a stop.
"""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core.schedules import Constant, Cosine, Step
from harness.dev.conformance.subject import facts_of
from harness.run import config
from systems.digest_a import DigestA
from tests import training
from tests.graphs import random_graph
from tests.test_identity import run_of

GRAPH = random_graph(40, 4, seed=2)
ADAM = {"_target_": "harness.core.optimisers.Adam", "lr": 0.02, "weight_decay": 0.001}
ADAMW = {**ADAM, "_target_": "harness.core.optimisers.AdamW", "weight_decay": 0.1}
SGD = {**ADAM, "_target_": "harness.core.optimisers.Sgd", "momentum": 0.9}
OPTIMISERS = {
    "adam": ADAM,
    "adamw": ADAMW,
    "amsgrad": {**ADAMW, "amsgrad": True},
    "sgd": SGD,
    "nesterov": {**SGD, "momentum": 0.8, "nesterov": True},
}
COSINE = {"_target_": "harness.core.schedules.Cosine", "warmup": 2}
LLCG = {"_target_": "systems.llcg.Llcg", "server_lr": 0.05, "local_steps": 2, "batch": 5}


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


@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_are_those_of_the_papers(name):
    rng = np.random.default_rng(5)
    gradients, start = list(rng.standard_normal((6, 7))), rng.standard_normal(7)
    made = config.make("optimiser", OPTIMISERS[name])
    weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimiser = made.make([weight], made.lr)
    for gradient, want in zip(gradients, by_hand(name, gradients, start, made.lr, made.weight_decay)):
        weight.grad = torch.from_numpy(gradient)
        optimiser.step()
        np.testing.assert_allclose(weight.detach().numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("system, name", [(training.VANILLA, "amsgrad"), (LLCG, "nesterov")])
def test_a_run_takes_it_and_goes_on_bit_for_bit(pool, system, name):
    """And each optimiser follows the schedule: LLCG's server has one of its own, with a rate of its own."""
    how = {"system": system, "optimiser": OPTIMISERS[name], "schedule": COSINE}
    whole = training.run(pool, GRAPH, 2, **how)
    assert training.same_bits(whole, training.run(pool, GRAPH, 2, **how, stop_at=3))
    different = training.run(pool, GRAPH, 2, **{**how, "optimiser": ADAM})
    assert not training.same_bits(whole, different), "the optimiser is used"
    for found in whole:
        shares = [Cosine(warmup=2).factor(epoch, 6) for epoch in range(6)]
        bases = [0.02, 0.05] if system == LLCG else [0.02]
        assert found["rates"] == [[base * share for base in bases] for share in shares]


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
        found = [ours.factor(epoch, epochs) for epoch in range(epochs)]
        assert found[:warmup] == [(epoch + 1) / warmup for epoch in range(min(warmup, epochs))]
        np.testing.assert_allclose(found[warmup:], want, rtol=1e-9, atol=1e-12)


def test_a_rate_beyond_the_largest_number_is_infinite():
    assert Step(every=1, gamma=10.0).factor(400, 500) == np.inf


def test_the_default_is_adam_at_a_constant_rate():
    run = run_of()
    assert run.composed["optimiser"] == {
        "_target_": "harness.core.optimisers.Adam", "lr": 0.01, "weight_decay": 0.0005
    }  # fmt: skip
    assert not run.scheduled and run_of("schedule=cosine").scheduled and run_of("schedule.warmup=3").scheduled


@pytest.mark.parametrize(
    "knobs, given, said",
    [
        ({}, {"optimiser": config.make("optimiser", OPTIMISERS["sgd"])}, "optimiser=adam"),
        ({}, {"scheduled": True}, "schedule=constant"),
        ({"update": "delta"}, {"scheduled": True}, "schedule=constant"),
        ({"update": "delta"}, {"optimiser": config.make("optimiser", OPTIMISERS["sgd"])}, None),
        ({}, {}, None),
    ],
)
def test_what_a_parameter_server_cannot_do_is_refused(knobs, given, said):
    facts = dataclasses.replace(facts_of("gcn"), **given)
    reason = DigestA(**knobs).supports(facts)
    assert reason is None if said is None else said in reason and "\n" not in reason
