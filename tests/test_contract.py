"""What a system must be and give: said in one sentence where it is not so, instead of in a crash or a wrong
number.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from harness.base.errors import InputError
from harness.core.mixins import SeesOutput
from harness.core.system import Ready, ReplicaSystem, System
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings

GRAPH = random_graph(5, vertices=24)


# Answers without a wait().
UNWRAPPED = {"tensor": lambda rows: rows, "nothing": lambda rows: None}


@dataclass
class Wrong(System):
    """Gives what `how` says in the layer `at` on worker 1, and zeros elsewhere."""

    how: str = "right"
    at: int = 1
    features: str = "refetch"

    def halo(self, layer, h):
        rows = h.new_zeros(self.plan.num_halo, h.shape[1])
        if self.how in UNWRAPPED and (layer, self.comm.rank) == (self.at, 1):
            return UNWRAPPED[self.how](rows)
        return Ready(self.spoil(rows) if (layer, self.comm.rank) == (self.at, 1) else rows)

    def input_halo(self, x):
        rows = x.new_zeros(self.plan.num_halo, x.shape[1])
        return self.spoil(rows) if self.comm.rank == 1 else rows

    def spoil(self, rows):
        return {
            "short": lambda: rows[1:],
            "long": lambda: torch.cat([rows, rows[:1]]),
            "wide": lambda: torch.cat([rows, rows], 1),
            "flat": lambda: rows.flatten(),
            "type": lambda: rows.to(torch.float32),
            "none": lambda: None,
            "right": lambda: rows,
        }[self.how]()


@dataclass
class WrongSums(ReplicaSystem):
    features: str = "refetch"

    def synchronize(self, layer, z):
        return z[1:] if (layer, self.comm.rank) == (0, 1) else z


@pytest.mark.parametrize(
    "how, model",
    [*((how, "gcn") for how in ("short", "long", "wide", "flat", "type", "none")), ("wide", "gat")],
)
def test_rows_of_another_shape_are_one_sentence_with_system_layer_and_worker(pool, how, model):
    settings = Settings(model=systems.small(model), epochs=1)
    with pytest.raises(
        AssertionError,
        match=r"InputError: system tests.test_contract.Wrong, layer 1, worker 1: it gave .* needed",
    ):
        systems.run(pool, GRAPH, {"_target_": "tests.test_contract.Wrong", "how": how}, 2, settings=settings)


@pytest.mark.parametrize("how, kind, model", [("tensor", "Tensor", "gat"), ("nothing", "NoneType", "gcn")])
def test_an_answer_without_wait_is_one_sentence_that_names_ready(pool, how, kind, model):
    settings = Settings(model=systems.small(model), epochs=1)
    with pytest.raises(
        AssertionError,
        match=rf"Wrong, layer 1, worker 1: it gave {kind}, which has no wait\(\), .* Ready\(rows\)",
    ):
        systems.run(pool, GRAPH, {"_target_": "tests.test_contract.Wrong", "how": how}, 2, settings=settings)


def test_features_fetched_once_are_held_to_their_shape_too(pool):
    block = {"_target_": "tests.test_contract.Wrong", "how": "short", "features": "once"}
    with pytest.raises(
        AssertionError, match="InputError: system tests.test_contract.Wrong, input_halo, worker 1: it gave"
    ):
        systems.run(pool, GRAPH, block, 2, settings=Settings(epochs=1))


def test_sums_over_replicas_are_held_to_their_shape_too(pool):
    with pytest.raises(
        AssertionError, match="InputError: system tests.test_contract.WrongSums, layer 0, worker 1: it gave"
    ):
        systems.run(
            pool, GRAPH, {"_target_": "tests.test_contract.WrongSums"}, 2, settings=Settings(epochs=1)
        )


@dataclass
class WrongProducts(SeesOutput, Wrong):
    """A product with the graph, or an output, of its own: one row too few, or columns twice."""

    where: str = "propagate"

    def propagate(self, layer, h, weight, dropout):
        z = super().propagate(layer, h, weight, dropout)
        return z if self.where != "propagate" else z[:-1] if self.how == "short" else torch.cat([z, z], 1)

    def output(self, layer, z):
        return z if self.where != "output" else z[:-1] if self.how == "short" else torch.cat([z, z], 1)

    def spoil(self, rows):
        return rows


@pytest.mark.parametrize("where, what", [("propagate", "rows of its product"), ("output", "output")])
@pytest.mark.parametrize("layers, how", [(2, "short"), (3, "wide")])
def test_products_and_outputs_of_another_shape_are_one_sentence(pool, layers, how, where, what):
    settings = Settings(model=systems.small("gcn", layers), epochs=1)
    block = {"_target_": "tests.test_contract.WrongProducts", "how": how, "where": where}
    with pytest.raises(
        AssertionError,
        match=rf"InputError: system tests.test_contract.WrongProducts, layer 0, worker \d: it gave .* {what}",
    ):
        systems.run(pool, GRAPH, block, 2, settings=settings)


def test_rows_of_the_right_shape_pass(pool):
    outcome = systems.run(
        pool, GRAPH, {"_target_": "tests.test_contract.Wrong"}, 2, settings=Settings(epochs=1)
    )
    assert len(outcome.losses) == 1


class Plain(System):
    def halo(self, layer, h):
        return Ready(h[:0])


class Derived(Wrong):
    pass


class DerivedWithAKnob(Wrong):
    more: int = 1


@dataclass
class Silent(System):
    knob: int = 1


@dataclass
class SilentReplicas(ReplicaSystem):
    knob: int = 1


@dataclass
class WithoutALayer(System):
    def halo(self, h):
        return Ready(h[:0])


@pytest.mark.parametrize(
    "name, says",
    [
        ("WithoutALayer", r"lacks the method halo\(self, layer, h\)"),
        ("Plain", "is not a dataclass; write @dataclass above the class"),
        ("DerivedWithAKnob", "is not a dataclass; write @dataclass above the class"),
        ("Silent", r"lacks the method halo\(self, layer, h\)"),
        ("SilentReplicas", r"lacks the method synchronize\(self, layer, z\)"),
    ],
)
def test_a_class_that_is_no_system_is_refused_before_any_worker_starts(name, says):
    with pytest.raises(InputError, match=rf'system._target_="tests.test_contract.{name}" {says}'):
        make_system({"_target_": f"tests.test_contract.{name}"})


def test_a_class_derived_from_a_system_needs_nothing_more():
    assert make_system({"_target_": "tests.test_contract.Derived", "at": 3}).at == 3


@pytest.mark.parametrize("name", systems.VARIANTS)
def test_a_knob_that_is_none_of_its_choices_or_below_its_range_is_one_sentence(name):
    values = systems.block(name)
    for key, value in values.items():
        if key == "_target_" or isinstance(value, bool | list):
            continue
        with pytest.raises(InputError) as refused:
            make_system({**values, key: "zzzzzzzz" if isinstance(value, str) else -(10**9)})
        sentence = str(refused.value)
        assert sentence.startswith(f"system.{key}=") and "\n" not in sentence
