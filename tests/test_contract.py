"""What a system must be and give: said in one sentence where it is not so, instead of in a crash or a wrong
number.
"""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
import yaml

from harness.base.errors import InputError
from harness.base.target import target_class
from harness.core.mixins import SeesOutput
from harness.core.system import Ready, ReplicaSystem, System, asked_once
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.pages import CONF
from tests.systems import Settings

GRAPH = random_graph(5, vertices=24)
SPOILT = {
    "short": lambda rows: rows[1:],
    "wide": lambda rows: torch.cat([rows, rows], 1),
    "flat": lambda rows: rows.flatten(),
    "type": lambda rows: rows.to(torch.float32),
    "none": lambda rows: None,
    "bare": lambda answer: answer.wait(),  # without a wait()
}


@dataclass
class Wrong(System):
    """Gives on worker 1 what `how` says, in the place that `where` says, and zeros elsewhere."""

    where: str = "rows"
    how: str = "short"
    features: str = "once"

    def spoilt(self, where, layer, given):
        here = where == self.where and self.comm.rank == 1 and layer == (where != "input_halo")
        return SPOILT[self.how](given) if here else given

    def halo(self, layer, h):
        rows = Ready(self.spoilt("rows", layer, h.new_zeros(self.plan.num_halo, h.shape[1])))
        return self.spoilt("answer", layer, rows)

    def input_halo(self, x):
        return self.spoilt("input_halo", 0, x.new_zeros(self.plan.num_halo, x.shape[1]))


@dataclass
class WrongProducts(SeesOutput, Wrong):
    def propagate(self, layer, h, weight, dropout):
        return self.spoilt("product", layer, super().propagate(layer, h, weight, dropout))

    def output(self, layer, z):
        return self.spoilt("output", layer, z)


@dataclass
class WrongSums(ReplicaSystem):
    where: str = "sums"
    how: str = "short"
    features: str = "refetch"

    def synchronize(self, layer, z):
        return SPOILT[self.how](z) if (layer, self.comm.rank) == (1, 1) else z


LAYER = "layer 1, worker 1: it gave"


@pytest.mark.parametrize(
    "name, where, how, model, says",
    [
        ("Wrong", "rows", "short", "gcn", f"{LAYER} .* needed"),
        ("Wrong", "rows", "flat", "gcn", f"{LAYER} .* needed"),
        ("Wrong", "rows", "type", "gcn", f"{LAYER} .* needed"),
        ("Wrong", "rows", "none", "gcn", f"{LAYER} .* needed"),
        ("Wrong", "rows", "wide", "gat", f"{LAYER} .* needed"),
        ("Wrong", "answer", "none", "gcn", rf"{LAYER} NoneType, which has no wait\(\)"),
        ("Wrong", "answer", "bare", "gat", rf"{LAYER} Tensor, which has no wait\(\), .* Ready\(rows\)"),
        ("Wrong", "input_halo", "short", "gcn", "input_halo, worker 1: it gave"),
        ("WrongProducts", "product", "short", "gcn", f"{LAYER} .* rows of its product"),
        ("WrongProducts", "output", "wide", "gcn", f"{LAYER} .* output"),
        ("WrongSums", "sums", "short", "gcn", LAYER),
    ],
)
def test_what_a_system_gives_wrongly_is_one_sentence(pool, name, where, how, model, says):
    """It names system, layer and worker."""
    block = {"_target_": f"tests.test_contract.{name}", "where": where, "how": how}
    settings = Settings(model=systems.small(model, 3), epochs=1)
    with pytest.raises(AssertionError, match=f"InputError: system tests.test_contract.{name}, {says}"):
        systems.run(pool, GRAPH, block, 2, settings=settings)


class Plain(System):
    def halo(self, layer, h):
        return Ready(h[:0])


class Derived(Wrong):
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
        ("Derived", "is not a dataclass; write @dataclass above the class"),
        ("Silent", r"lacks the method halo\(self, layer, h\)"),
        ("SilentReplicas", r"lacks the method synchronize\(self, layer, z\)"),
    ],
)
def test_a_class_that_is_no_system_is_refused_before_any_worker_starts(name, says):
    with pytest.raises(InputError, match=rf'system._target_="tests.test_contract.{name}" {says}'):
        make_system({"_target_": f"tests.test_contract.{name}"})


def test_every_yaml_of_a_system_has_every_knob():
    """Hydra lets no other be set."""
    for path in CONF.glob("**/*.yaml"):
        block = yaml.safe_load(path.read_text())
        fields = dataclasses.fields(target_class(block, "system", System))
        assert {field.name for field in fields if field.init} <= block.keys(), path


def test_a_knob_that_is_none_of_its_choices_is_one_sentence():
    for name in systems.VARIANTS:
        values = systems.block(name)
        for key in (key for key, value in values.items() if isinstance(value, str) and key != "_target_"):
            with pytest.raises(InputError, match=rf"^system\.{key}=.*$"):
                make_system({**values, key: "zzzzzzzz"})


@pytest.mark.parametrize("name, twice", [("sancus", False), ("pipegcn", False), ("vanilla", True)])
def test_a_layer_that_asks_twice_is_refused_where_something_is_kept_of_it(name, twice, monkeypatch):
    system, asked = make_system(systems.block(name)), []
    monkeypatch.setattr(type(system), "halo", lambda self, layer, h: asked.append(layer))
    monkeypatch.setattr(type(system), "propagate", lambda self, layer, h: self.halo(layer, h))
    with asked_once(system, True):
        system.halo(1, None)
        system.propagate(0, None)
        for layer, again in ((1, system.propagate), (0, system.halo)):
            if twice:
                again(layer, None)
            else:
                said = f"layer {layer} .* and {name} keeps what it sends of a layer"
                with pytest.raises(InputError, match=said):
                    again(layer, None)
    with asked_once(system, False):
        for layer in (1, 1):
            system.halo(layer, None)
    assert asked == [1, 0, *([1, 0] if twice else []), 1, 1] and "halo" not in vars(system)


@pytest.mark.parametrize("mode, overlaps", [("synchronous", False), ("asynchronous", True)])
def test_only_an_asynchronous_exchange_travels_while_workers_compute(mode, overlaps):
    assert make_system(systems.block("sylvie", mode=mode)).traits().overlaps is overlaps
