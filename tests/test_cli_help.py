"""`halobench run --help`: every key with its value and what its dataclass's docstring says."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from harness import cli
from harness.check import InputError
from harness.check.target import target_class
from harness.core.config import EvaluateConfig
from harness.core.system import System
from harness.run import keys, runner
from harness.run.settings import RunConfig
from tests.launching import ROOT


@dataclass
class Documented:
    """Words about the class. alpha is not meant here.

    alpha, beta   what both do,
                  over two lines
    gamma: after a colon; delta is told here too

    Not of gamma any more.
    """

    alpha: int = 0
    beta: int = 0
    gamma: int = 0
    delta: int = 0
    epsilon: int = 0


def test_entries_of_a_docstring():
    assert keys.described(Documented) == {
        "alpha": "what both do, over two lines",
        "beta": "what both do, over two lines",
        "gamma": "after a colon; delta is told here too",
        "delta": "after a colon; delta is told here too",
        "epsilon": "",
    }


@pytest.mark.parametrize("cls", [RunConfig, EvaluateConfig])
def test_every_key_is_described(cls):
    said = keys.described(cls)
    assert all(len(text) > 10 for text in said.values()), said


@pytest.mark.parametrize("name", runner.configured())
def test_every_knob_of_a_system_is_described(name):
    block = runner.configured()[name]
    said = keys.described(target_class(block, "system", System))
    assert [key for key in block if key != "_target_" and not said[key]] == []


def test_every_choice_is_named():
    """What a key refuses lists what it takes; the docstring has each of these."""
    said = keys.described(RunConfig)
    asked = ("device", "kernel", "transport", "stale", "diverged", "launch", "progress")
    for key in asked:
        with pytest.raises(InputError) as refused:
            RunConfig(**{key: "zzzzzzzz"})
        known = str(refused.value).partition("known: ")[2].split(", ")
        assert len(known) > 1 and all(f'"{choice}"' in said[key] for choice in known), key


def test_help_has_every_key_with_its_value(capsys):
    assert cli.main(["run", "system=sancus", "system.bound=3", "-m", "seed=1,2", "--help"]) == 0
    shown = capsys.readouterr().out
    for key in (
        "system.bound=3",
        "workers=1",
        "model.dropout=0.5",
        "evaluate.every=1",
        "partition.seed=null",
    ):
        assert re.search(rf"^  {re.escape(key)} +\S", shown, re.M), key
    assert "eps_E or eps_A in epochs" in shown
    options = {path.stem for path in (ROOT / "conf" / "system").glob("*.yaml")}
    listed = re.search(r"^system=NAME, of (.*?)\n  \w", shown, re.M | re.S)[1]
    assert options <= set(listed.replace("\n", " ").replace(" ", "").split(","))
    assert all(len(line) <= keys.WIDTH for line in shown.splitlines())


def test_help_with_what_is_not_given_yet_or_not_known(capsys):
    assert cli.main(["dataset=npz", "--help"]) == 0
    assert "dataset.path=VALUE" in capsys.readouterr().out
    assert cli.main(["system=sancuss", "--help"]) == 2
    assert 'did you mean "sancus"?' in capsys.readouterr().err
