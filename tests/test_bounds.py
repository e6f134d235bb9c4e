"""Every number of a config has bounds that its dataclass states, and no value ends in a traceback."""

import dataclasses
import functools
import re
import typing
from collections.abc import Collection
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base.bounds import Bounds, bounds_of
from harness.base.errors import InputError, typed
from harness.base.places import CONF
from harness.base.target import target_class
from harness.core.config import ModelConfig
from harness.core.draws import draws
from harness.run import config, runner
from harness.run.settings import RunConfig


@functools.cache
def base() -> dict:
    (run,) = runner.composed([["combine=quantised", "straggler=delayed"]])
    return run.composed


def composed(system: str) -> dict:
    return {**base(), "system": runner.configured()[system]}


@functools.cache
def options(group: str) -> list[dict]:
    """Every block that an option of a group is, its own presets and those with a value to give left out."""
    found = [yaml.safe_load(path.read_text()) for path in sorted(Path(CONF, group).glob("*.yaml"))]
    return [
        {k: v for k, v in block.items() if k != "defaults"} for block in found if "???" not in block.values()
    ]


@functools.cache
def schemas() -> dict[type, str]:
    """Every dataclass that a block of a config is an instance of, nested ones too, and its block."""
    found = {RunConfig: "", **{cls: name for name, cls in config.BLOCKS.items()}}
    for group in config.TARGETS:
        for block in options(group):
            found[config._class_of(group, block)] = group
    found[
        target_class(
            {"_target_": "harness.data.partition.extended.Extended"}, "partition", config.Partitioner
        )
    ] = "partition"
    for cls in list(found):
        for kind in typing.get_type_hints(cls).values():
            each = next((k for k in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(k)), None)
            if each:
                found[each] = f"{found[cls]}.{each.__name__}"
    return found


def is_number(kind: object) -> bool:
    return bool({int, float} & {kind, *typing.get_args(kind)} or list[int] in typing.get_args(kind))


def test_every_number_of_the_schema_has_bounds():
    lacking = [
        f"{cls.__name__}.{field.name}"
        for cls in schemas()
        for field in dataclasses.fields(cls)
        if field.init
        and is_number(typing.get_type_hints(cls)[field.name])
        and field.name not in bounds_of(cls)
    ]
    assert not lacking and len(schemas()) > 40


def beyond(bounds: Bounds | Collection, kind: object) -> list:
    """Numbers that are just outside of bounds, or far, or none."""
    low, high = (bounds.low, bounds.high) if isinstance(bounds, Bounds) else (min(bounds), max(bounds))
    found = [low, low - 1, high, high + 1 if high + 1 > high else 2 * high]
    found += [float("nan"), -float("inf")] if float in (kind, *typing.get_args(kind)) else []
    # A bound itself may be one that may be taken, and so may twice infinity.
    return [v for v in found if not low <= v <= high or (v == low and getattr(bounds, "above", False))]


def test_a_number_beyond_its_bounds_is_refused_with_the_whole_range():
    for cls in schemas():
        named = {"name": "twin/reddit"} if "name" in cls.__dataclass_fields__ else {}
        for key, bounds in bounds_of(cls).items():
            kind = typing.get_type_hints(cls)[key]
            said = rf"^block\.{key}(\[0\])?=\S+ is out of range: give .*{re.escape(str(bounds))}"
            for value in beyond(bounds, kind):
                given = [value] if list[int] in typing.get_args(kind) else value
                with pytest.raises(InputError, match=said):
                    typed(cls, {**named, key: given}, "block")
                    pytest.fail(f"{cls.__name__}.{key}={value} is taken")


def test_what_is_made_of_the_same_values_is_nobody_elses():
    """A block that was checked before is made anew, and of values that are written otherwise another."""

    @dataclasses.dataclass
    class Block:
        rows: list[str]
        more: typing.Any = None

    first = typed(Block, {"rows": ["a"]}, "")
    first.rows.append("b")
    assert typed(Block, {"rows": ["a"]}, "") == Block(["a"])
    for value in (1, True, 1.0, "1"):
        made = typed(Block, {"rows": [], "more": value}, "").more
        assert made == value and type(made) is type(value)


def test_a_model_is_no_deeper_than_draws_tell_layers_apart():
    """The layer after the deepest one would draw what the first layer draws in the next epoch."""
    most = int(bounds_of(ModelConfig)["layers"].high)
    drawn = functools.partial(draws, 1, direction="forward", sender=0, shape=(4,), dtype=torch.float64)
    noise = {str(drawn(epoch=epoch, layer=layer)) for epoch in (0, 1) for layer in range(most + 1)}
    assert len(noise) == 2 * (most + 1)


NUMBERS = st.one_of(
    st.integers(),
    st.integers(-2, 2),
    st.sampled_from([10**20, 10**400, -(10**30), 2**31, 2**32, 2**63]),
    st.floats(),
    st.sampled_from([1e300, 1e-320, -0.0]),
)
VALUES = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    st.text(max_size=400),
    st.sampled_from(["x" * 300, "/dev/null", "\0", "../..", "1e400", "${x}", "%s", "é" * 120]),
    st.lists(NUMBERS, max_size=3),
    st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2),
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[dict, str, str, object]:
    """A run of any system in which any key has any value: its config, the system, the key as a command names
    it, and the value.
    """
    system = draw(st.sampled_from(sorted(runner.configured())))
    run = {key: value.copy() if isinstance(value, dict) else value for key, value in composed(system).items()}
    for group in ("partition", "optimiser", "schedule"):
        drawn = draw(st.sampled_from([run[group], *options(group)]))
        run[group] = drawn.copy()
    places = [(run, key, key) for key in run if key not in config.ALL]
    for name in config.ALL:
        block = run.get(name) or {}
        places += [(block, key, f"{name}.{key}") for key in block if key != "_target_"]
    keys, key, named = draw(st.sampled_from(places))
    keys[key] = draw(VALUES)
    return run, system, named, keys[key]


def accepted(run: dict) -> bool:
    """Whether a run is one that has a folder; what is not is refused in one sentence."""
    try:
        made = config.check(run)
        assert made.directory and isinstance(made.scheduled, bool)
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) > 10
        return False
    return True


@given(changed())
def test_no_value_of_any_key_ends_in_a_traceback(drawn):
    accepted(drawn[0])


def test_what_is_no_list_and_no_float_is_refused_in_one_sentence():
    for block, key, value, said in (
        ("cluster", "devices", {}, "cluster.devices={} is not a list: give one"),
        ("system", "fanouts", {"a": 1}, "system.fanouts={a: 1} is not a list: give one, or null"),
        ("straggler", "delay", 10**400, "straggler.delay has more digits than a number can have"),
    ):
        run = composed("bytegnn")
        with pytest.raises(InputError, match=re.escape(said)):
            config.check({**run, block: {**run[block], key: value}})
