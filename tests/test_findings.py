"""docs/findings.md: what it states stands on the pages that it is from, and its commands can be run."""

from __future__ import annotations

import re
import shlex

import pytest

from harness.papers.claims import experiment
from harness.papers.study import __main__ as study
from harness.run import overrides, runner
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()
SOURCES = ("systems/study.csv", "results.md", "systems/lean.md", "papers/capgnn.md")
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.S | re.M)
    for line in block.replace("\\\n", " ").strip().splitlines()
]


def test_every_number_with_an_interval_stands_on_the_page_that_it_is_from():
    sources = "".join((ROOT / "docs" / name).read_text() for name in SOURCES)
    there = set(NUMBER.findall(sources))
    found = NUMBER.findall(PAGE)
    assert len(found) > 40 and [each for each in found if each not in there] == []


def test_every_finding_has_a_command():
    findings = PAGE.split("\n## ")[1:]
    assert len(findings) == 8 and all("```sh" in each for each in findings)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words)[:60])
def test_a_command_asks_for_what_there_is(command):
    if command[:2] == ["halobench", "study"]:
        given = command[2:]
        options = {"--graphs": study.GRAPHS, "--systems": study.SYSTEMS, "--kinds": study.ROWS}
        for option, known in options.items():
            if option in given:
                after = given[given.index(option) + 1 :]
                names = after[
                    : next((i for i, word in enumerate(after) if word.startswith("--")), len(after))
                ]
                assert names and set(names) <= set(known)
    elif command[:2] == ["halobench", "-m"]:
        overrides.check(command[1:], runner.CONF)
    else:
        assert command[:2] == ["halobench", "figures"]
        names = command[2 : command.index("--size")]
        assert set(names) <= set(experiment.load(experiment.FOLDER))
