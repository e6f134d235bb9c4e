"""A block that is made without OmegaConf is the one that OmegaConf makes."""

import dataclasses
from typing import Any

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base import errors, exact
from harness.base.bounds import number, out_of_bounds, word
from harness.run import runner


@dataclasses.dataclass
class Inner:
    rate: float = number(1, 0, 5)
    tag: str = "t"


@dataclasses.dataclass
class Block:
    count: int = number(3, 1, 10)
    share: float = 1
    name: str = "a"
    on: bool = False
    kind: str | None = word(None, "x", "y")
    either: int | float = 2
    anything: Any = None
    numbers: list[int] = dataclasses.field(default_factory=list)
    by_name: dict[str, float] = dataclasses.field(default_factory=dict)
    inner: Inner = dataclasses.field(default_factory=Inner)
    other: Inner = dataclasses.field(default_factory=lambda: Inner(3, "mine"))
    filled: dict[str, float] = dataclasses.field(default_factory=lambda: {"z": 1})
    one_of_two: float | str = "a"
    several: list[Inner] = dataclasses.field(default_factory=list)


VALUES = [
    None, True, 0, 1, -1, 7, 99, 2**60, 10**400, 0.5, 1.0, "", "x", "3", "???", [], [1, 2], [1.0], ["a"],
    [None], {}, {"rate": 2}, {"rate": 9}, {"rate": "2"}, {"x": 1}, {1: 2}, {"a": {"b": [1, {"c": None}]}},
    {"tag": "x"}, [{"rate": 1}, {}], (1, 2),
]  # fmt: skip


def by_omegaconf(values: dict[str, Any]) -> Block | None:
    """None where it, or a bound, refuses them."""
    try:
        config = OmegaConf.merge(OmegaConf.structured(Block), OmegaConf.create(values))
        if [*out_of_bounds(Block, config)] or config.kind not in (None, "x", "y"):
            return None
        return OmegaConf.to_object(config)
    except (OmegaConfBaseException, OverflowError):
        return None


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Block)])
def test_it_is_the_one_that_omegaconf_makes_with_the_same_types_or_none(field):
    taken = 0
    for value in VALUES:
        try:
            made = exact.made(Block, {field: value})
        except exact.Inexact:
            continue
        taken += 1
        assert repr(made) == repr(by_omegaconf({field: value}))
        assert not isinstance(value, list | dict) or getattr(made, field) is not value
    assert taken or field in ("other", "filled")  # which OmegaConf merges into its default


def test_no_block_of_a_run_is_left_to_omegaconf(monkeypatch):
    """Which takes a hundred times as long."""
    monkeypatch.setattr(errors, "OmegaConf", None)
    for system in runner.configured():
        runner.composed(runner.expand(f"system={system} dataset=twin/reddit cluster=dgx_h100"))
