"""Commands on the pages are commands, and the site shows every page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from harness.claims.experiment import FOLDER
from harness.cli import COMMANDS
from harness.figures.figure import available
from harness.run import overrides, runner
from harness.run.runner import Places
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# A command's words, line continuations taken away.
COMMAND = re.compile(r"^(?:    )?python -m (harness(?:\.\w+)*) (.+)$", re.M)


INSTALLED = re.compile(r"^(?:    )?halobench (.+)$", re.M)


def commands() -> list[tuple[str, str, str]]:
    found = []
    for page in PAGES:
        text = re.sub(r"\s*\\\n\s*", " ", page.read_text())
        for module, words in COMMAND.findall(text):
            found.append((page.name, module, re.sub(r"\s{2,}#.*$", "", words).strip()))
    return found


def test_lines_of_the_readme_fit_beside_another_window():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 110 and not line.startswith("|")] == []  # rows cannot wrap


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_heading_stands_apart(page):
    """An empty line is before each, without which a reader of the source runs past it."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert re.findall(r"^(?!#)(\S.*)\n#{1,4} (.+)$", prose, re.M) == []


def test_the_pages_have_commands():
    assert len({page for page, _, _ in commands()}) >= 5 and len(commands()) >= 20


@pytest.mark.parametrize(
    "page, words", [(page, words) for page, module, words in commands() if module == "harness"]
)
def test_a_pages_run_is_composed(page, words, tmp_path):
    words = shlex.split(words)
    if "--config-dir" in words:
        pytest.skip("a folder that the page makes: tests/test_tutorial.py runs it")
    asked = [word for word in words if word != "-m"]
    assert overrides.check(words, runner.CONF) == ("-m" in words)
    places = Places(tmp_path, tmp_path, tmp_path)
    sweep = shlex.join(word for word in asked if not word.startswith(("results=", "data_dir=")))
    assert runner.folders(sweep, places)


def test_a_pages_subcommands_are_there():
    found = [(page.name, words) for page in PAGES for words in INSTALLED.findall(page.read_text())]
    assert {"faq.md", "tutorial.md", "README.md"} <= {page for page, _ in found}
    for page, words in found:
        assert words.split()[0] in COMMANDS, f"{page}: halobench {words}"


def test_a_newcomers_questions_are_answered_by_commands():
    """Each of the page's first part: a bold question, then an answer that ends in commands."""
    beginning = (ROOT / "docs" / "faq.md").read_text().split("\n## ")[1]
    questions = re.findall(r"^\*\*(.+?\?)\*\*(.+?)(?=^\*\*|\Z)", beginning, re.M | re.S)
    asked = " ".join(question for question, _ in questions)
    for word in ("own graph", "memory", "partition", "cite", "revisions"):
        assert word in asked
    for question, answer in questions:
        assert re.search(r"^    \S", answer, re.M), f"{question} has no command"


def test_a_pages_figures_are_there():
    for page, module, words in commands():
        if module == "harness.figures":
            names = [word for word in words.split("--")[0].split() if word]
            assert set(names) <= set(available(FOLDER, "small")), f"{page}: {words}"


def test_the_site_shows_every_page():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def shown(entry) -> set[str]:
        if isinstance(entry, dict):
            return set().union(*map(shown, entry.values()))
        return set().union(*map(shown, entry)) if isinstance(entry, list) else {entry}

    docs = ROOT / "docs"
    assert shown(settings["nav"]) == {str(path.relative_to(docs)) for path in docs.glob("**/*.md")}


def test_the_sites_start_shows_the_readmes_picture():
    def picture(page: Path) -> tuple[str, Path]:
        """Its words, and its file."""
        ((words, file),) = re.findall(r"!\[(.+)\]\((.+)\)", page.read_text())
        return words, (page.parent / file).resolve(strict=True)

    assert picture(ROOT / "docs" / "index.md") == picture(ROOT / "README.md")


def test_names_of_the_site_are_of_this_project():
    for path in (ROOT / "docs" / "reference").glob("*.md"):
        for name in re.findall(r"^::: (\S+)$", path.read_text(), re.M):
            place = Path(*name.split("."))
            files = [
                ROOT / place.with_suffix(".py"),
                ROOT / place.parent.with_suffix(".py"),
                ROOT / place / "__init__.py",
            ]
            assert any(file.is_file() for file in files), f"{path.name}: {name}"
