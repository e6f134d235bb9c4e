"""What is checked before a commit, and what the package says of itself, agree with what CI does."""

import re
import subprocess
import tomllib

import yaml

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def hooks() -> list[dict]:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {each["repo"] for each in repositories} == {"local"}, "what is local is not fetched"
    return [hook for each in repositories for hook in each["hooks"]]


def test_hooks_run_what_make_lint_runs_without_a_network():
    entries = {hook["id"]: hook["entry"] for hook in hooks()}
    assert all(hook["language"] == "system" for hook in hooks())
    assert all(entry.startswith(".venv/bin/python -m ") for entry in entries.values())
    lint = subprocess.run(
        ["make", "--dry-run", "--always-make", "lint"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    commands = re.findall(r"python -m (ruff (?:check|format --check)|mypy)\b", lint)
    assert {"ruff check", "ruff format --check"} <= set(commands)
    for command in commands:
        assert any(f"-m {command}" in entry for entry in entries.values()), f"no hook runs {command}"


def test_every_python_that_is_claimed_is_allowed_and_has_its_pins():
    claimed = {tuple(map(int, v.split("."))) for v in re.findall(r":: (3\.\d+)", str(PROJECT["classifiers"]))}
    least = tuple(map(int, PROJECT["requires-python"].removeprefix(">=").split(".")))
    assert min(claimed) == least and len(claimed) == 3
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().split()
    }
    named = [
        *PROJECT["dependencies"],
        *(n for each in PROJECT["optional-dependencies"].values() for n in each),
    ]
    missing = {re.split(r"[\[<=>]", name)[0].lower().replace("_", "-") for name in named} - pinned
    assert missing <= {"setuptools", "halobench"}, "constraints.txt pins what the package needs"
