"""The commands on README's, CONTRIBUTING's and the pages of docs/: each line of a block that starts one."""

import functools
import itertools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# Programs that a line of a block may start, after what it sets for them.
PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:\S*/)?(?:python|halobench|make|torchrun|srun|git|pip|pre-commit|docker|pytest)\s[^=:]"
)


@dataclass(frozen=True)
class Command:
    """A command of a page, as its words. `output` is the file that standard output goes to, if any."""

    page: str
    line: str
    words: tuple[str, ...]
    output: str | None = None

    @property
    def name(self) -> str:
        """The subcommand of halobench, however it is called ("run", "report claims"), else its program."""
        if self.words[0] == "halobench":
            two = " ".join(self.words[1:3])
            alone = self.words[1].startswith("-") or "=" in self.words[1]  # no subcommand: it is `run`
            return "run" if alone else two if two in COMMANDS else self.words[1]
        if self.words[:2] == ("python", "-m"):
            return "run" if self.words[2] == "harness" else self.words[2]
        return "set before" if "=" in self.words[0] else Path(self.words[0]).name

    @property
    def rest(self) -> list[str]:
        """What stands behind the name."""
        if self.words[0] == "halobench":
            named = self.words[1 : 1 + len(self.name.split())]
            return list(self.words[1 + (" ".join(named) == self.name) * len(named) :])
        return list(self.words[3 if self.words[:2] == ("python", "-m") else 1 :])


def blocks(text: str) -> list[str]:
    """The lines of a page that stand in blocks of the shell or of no language, or are indented by four; a
    command that goes on below is one line.
    """
    text = re.sub(r"[ \t]*\\\n\s*", " ", text)
    lines, language = [], None
    for line in text.splitlines():
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
        elif language in ("", "sh", "bash") or (language is None and re.match(r" {4}\S", line)):
            lines.append(line.strip())
    return lines


@functools.cache
def commands() -> list[Command]:
    found = []
    for page in PAGES:
        for line in blocks(page.read_text()):
            if PROGRAMS.match(line):
                words, _, output = re.sub(r"\s+# .*$", "", line).partition(" > ")
                found.append(
                    Command(
                        str(page.relative_to(ROOT)), line, tuple(shlex.split(words)), output.strip() or None
                    )
                )
    return found


def mentioned() -> list[tuple[str, str]]:
    """Page and text of each command in running text: `make NAME`, `halobench ...`, `python -m harness...`."""
    pattern = re.compile(r"`((?:make|halobench|python -m harness\S*)\b[^`]*)`")
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for text in pattern.findall(" ".join(page.read_text().split()))
    ]


# What begins with these words is tried elsewhere: by the test named, because the page has more to show than
# that the command ends, or needs what is made there.
TRIED = {
    "halobench --config-dir my_ideas/conf -m system=vanilla,zero_halo,refresh": (
        "test_tutorial.py::test_what_the_page_says_of_its_runs_holds"
    ),
    "halobench report table mine": "test_tutorial.py::test_what_the_page_says_of_its_runs_holds",
    "halobench check system=refresh": "test_tutorial.py::test_the_pages_system_holds_every_check",
    "PYTHONPATH=my_ideas halobench --config-dir my_ideas/conf dataset=ring": (
        "test_outside.py::test_a_dataset_is_one_file_and_one_yaml"
    ),
    "PYTHONPATH=my_ideas halobench --config-dir my_ideas/conf partition=stripes": (
        "test_outside.py::test_a_partitioner_is_one_file_and_one_yaml"
    ),
    "halobench --config-dir my_ideas/conf model=mixed": (
        "test_plugins.py::test_a_model_and_a_score_are_trained_traced_and_shown"
    ),
    "halobench cluster measure": "test_calibrate.py::test_the_command_writes_a_cluster",
    "halobench replay results/cora cluster=local.yaml": (
        "test_calibrate.py::test_a_run_is_replayed_on_the_machine_as_measured"
    ),
    "halobench runs extend RUN": "test_cli_runs.py::test_an_extended_run_is_the_longer_run_bit_for_bit",
    "halobench figures --from my_figures": "test_figures.py::test_the_figure_of_the_page",
    "torchrun --nnodes 2": "test_hosts.py::",
    "srun bash -c": "test_gpu_page.py::test_the_script_for_slurm_trains_with_a_task_per_worker",
    "halobench -m hydra/launcher=joblib": (
        "test_launchers.py::test_jobs_in_other_processes_are_the_same_runs"
    ),
    "halobench -m hydra/launcher=submitit_slurm": (
        "test_gpu_page.py::test_what_submitit_submits_is_a_job_with_the_pages_gpus"
    ),
    "halobench tune": "test_tune.py::test_the_pages_command_is_killed_and_goes_on",
    "halobench plan": "test_plan.py::test_every_command_of_the_page_is_planned",
    "halobench new": "test_new.py::test_files_are_written_once_and_the_next_commands_are_said",
    "halobench submit": "test_submissions.py::test_the_commands_say_what_comes_next_and_what_is_wrong",
    "halobench advise": "test_plan_advise.py::test_the_pages_command_names_a_winner_with_its_margins",
    "docker": "test_gpu_page.py::test_every_line_of_the_dockerfile_is_a_pages_command",
    ".venv/bin/pre-commit install": "test_habits.py::",
}


def tried(command: Command) -> str | None:
    return next((test for begins, test in TRIED.items() if command.line.startswith(begins)), None)


def of(*names: str, nightly: tuple[str, ...] = ()) -> list:
    """The commands of these names that are tried here, each once, named by page and number. On the pages that
    begin with `nightly` by the nightly target alone: others in the suite take the same way.
    """
    found, numbers = {}, itertools.count(1)
    asked = [command for command in commands() if command.name in names and not tried(command)]
    for command in sorted(asked, key=lambda command: command.page.startswith(nightly)):
        marks = pytest.mark.nightly(20) if command.page.startswith(nightly) else ()
        case = pytest.param(command, id=f"{command.page}-{next(numbers)}", marks=marks)
        found.setdefault(command.words, case)
    return list(found.values())


def fewest(cases: list, parts: Callable[[Command], set]) -> list:
    """Of the cases that `of` gives so few that each part of a command is in one: those of the suite before
    those of the nightly target, and first what has most parts that no other before it had.
    """
    seen: set = set()
    found = []

    def new(case) -> set:
        return parts(case.values[0]) - seen

    while left := [case for case in cases if new(case)]:
        found.append(max(left, key=lambda case: (not case.marks, len(new(case)))))
        seen |= new(found[-1])
    return found
