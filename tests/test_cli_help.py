"""`halobench run --help`: every key with its value and what its dataclass's docstring says."""

import os
import re
import sys

import pytest
import yaml

from harness import cli
from harness.base.errors import InputError, typed
from harness.base.target import target_class
from harness.base.terminal import read_as_far_as_wanted
from harness.core.cluster import Cluster, Device, Link
from harness.core.config import EvaluateConfig
from harness.core.counted import Score
from harness.run import config, keys
from harness.run.settings import RunConfig
from tests.launching import ROOT


def classes(group: str) -> set[type]:
    """The dataclasses that the options of a group name."""
    blocks = [yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / group).rglob("*.yaml")]
    if group == "score":
        blocks = [block for named in blocks for block in named.values()]
        return {target_class(block, group, Score) for block in blocks}
    # A yaml over another's names what it changes alone.
    named = [config._named(block, group) for block in blocks]
    return {config._class_of(group, block) for block in named if group == "model" or "_target_" in block}


GROUPS = ("dataset", "partition", "model", "optimiser", "schedule", "score", "system")


@pytest.mark.parametrize("group", [*GROUPS, None])
def test_every_key_has_a_text_of_its_own(group):
    """Of every group, and of the blocks and keys that are in none."""
    for cls in classes(group) if group else (RunConfig, EvaluateConfig, Cluster, Device, Link):
        said = keys.described(cls)
        assert all(len(text) > 3 for text in said.values()), (cls, said)
        assert len(set(said.values())) == len(said), (cls, said)


def test_every_choice_is_named():
    """What a key refuses lists what it takes; the docstring has each of these."""
    said = keys.described(RunConfig)
    asked = ("device", "kernel", "transport", "stale", "diverged", "launch", "progress")
    for key in asked:
        with pytest.raises(InputError) as refused:
            typed(RunConfig, {key: "zzzzzzzz"}, "")
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
    assert "eps_E or eps_A in epochs" in shown and "combine=NAME, by default none, of " in shown
    begins = re.findall(r"^(?:  )?(system|dataset|workers|epochs|seed|cluster|device|schedule)=", shown, re.M)
    assert begins == ["system", "dataset", "workers", "epochs", "seed", "cluster", "device", "schedule"]
    options = {path.stem for path in (ROOT / "conf" / "system").glob("*.yaml")}
    listed = re.search(r"^system=NAME, of (.*?)\n  \w", shown, re.M | re.S)[1]
    assert options <= set(listed.replace("\n", " ").replace(" ", "").split(","))
    assert all(len(line) <= keys.WIDTH for line in shown.splitlines())


def test_help_alone_and_no_words_list_the_commands_alone(capsys):
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in cli.COMMANDS) and "run system=NAME --help" in shown
    assert len(shown.splitlines()) < 40 and "optimiser.lr" not in shown
    assert cli.main([]) == 0 and capsys.readouterr().out == shown


def test_help_with_what_is_not_given_yet_or_not_known(capsys, refused):
    assert cli.main(["dataset=npz", "--help"]) == 0
    assert "dataset.path=VALUE" in capsys.readouterr().out
    refused(cli.main, ["system=sancuss", "--help"], 'did you mean "sancus"?')
    # A key of some of the swept options, and a block that is left out.
    assert cli.main(["-m", "system=digest,digest_a", "system.interval=5", "~optimiser", "--help"]) == 0
    assert "system=vanilla" not in (shown := capsys.readouterr().out) and "optimiser.lr" not in shown
    refused(cli.main, ["-m", "seed=1,2", "~foo", "--help"], "~foo deletes a key that is not there")


def test_reports_help_names_the_claims_and_doubles_no_per_cent_sign(capsys):
    for words, says in ((["report"], "halobench report claims"), (["report", "table"], "95 % interval")):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        assert says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [["run", "--help"], ["report", "--help"], []], ids=" ".join)
def test_help_whose_reader_has_seen_enough_ends_quietly(monkeypatch, capsys, words):
    """As in `halobench run --help | head`."""
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "argv", ["halobench"])
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert cli.main(words) == 0
    assert not capsys.readouterr().err


def test_a_pipe_that_breaks_though_somebody_reads_is_an_error():
    """As one to a worker that was killed: what was left to do has not been done."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb", 0) as pipe, pytest.raises(BrokenPipeError), read_as_far_as_wanted():
        pipe.write(b"more")
