"""Part `device` of the bench: counts of the pretended GPU, held to their targets."""

from __future__ import annotations

import json
import math

import pytest

from harness.dev.bench.device import WAITS_OF_ANY, device_lines
from harness.dev.bench.runs import RunFailed


@pytest.fixture
def checkout(tmp_path):
    """Writes a checkout whose pretended GPU is this program."""

    def write(program: str):
        folder = tmp_path / "tests" / "pretend"
        folder.mkdir(parents=True)
        (folder / "__main__.py").write_text(program)
        return tmp_path

    return write


def test_waits_are_held_to_their_targets_and_launches_are_told(checkout):
    counts = {
        "vanilla": {"synchronisations": 5, "drains": 0, "launches": 54, "collectives": 3},
        "cdfgnn": {"synchronisations": 28, "drains": 0, "launches": 347, "collectives": 10},
    }
    found = {line.name: line for line in device_lines(checkout(f"print({json.dumps(json.dumps(counts))})"))}
    assert found["vanilla: waits of the host"].met is False and found["cdfgnn: waits of the host"].met
    assert found["cdfgnn: waits of the host"].target == WAITS_OF_ANY
    assert found["cdfgnn: launches"].ours == 347 and found["cdfgnn: launches"].met is None


def test_a_program_that_fails_is_told(checkout):
    with pytest.raises(RunFailed, match="no such device"):
        device_lines(checkout("raise SystemExit('no such device')"))


def test_without_tests_nothing_is_counted_and_the_line_says_why(tmp_path):
    (line,) = device_lines(tmp_path)
    assert math.isnan(line.ours) and line.met is None and "only a checkout has" in line.note
