"""The pages are laid out to be read, and the site shows every one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def test_lines_of_the_readme_fit_beside_another_window():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 110 and not line.startswith("|")] == []  # rows cannot wrap


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_heading_stands_apart(page):
    """An empty line is before each, without which a reader of the source runs past it."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert re.findall(r"^(?!#)(\S.*)\n#{1,4} (.+)$", prose, re.M) == []


def test_a_newcomers_questions_are_answered_by_commands():
    """Each of the page's first part: a bold question, then an answer that ends in commands."""
    beginning = (ROOT / "docs" / "faq.md").read_text().split("\n## ")[1]
    questions = re.findall(r"^\*\*(.+?\?)\*\*(.+?)(?=^\*\*|\Z)", beginning, re.M | re.S)
    asked = " ".join(question for question, _ in questions)
    for word in ("own graph", "memory", "partition", "cite", "revisions"):
        assert word in asked
    for question, answer in questions:
        assert re.search(r"^    \S", answer, re.M), f"{question} has no command"


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
