"""The pages are laid out to be read, and the site shows every one."""

import re

import yaml

from tests.conftest import ROOT


def test_lines_of_the_readme_fit_beside_another_window():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 110 and not line.startswith("|")] == []  # rows cannot wrap


def test_a_heading_stands_apart():
    """An empty line is before each, without which a reader of the source runs past it."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")):
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        assert re.findall(r"^(?!#)(\S.*)\n#{1,4} (.+)$", prose, re.M) == [], page


def test_the_site_shows_every_page():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def shown(entry) -> set[str]:
        if isinstance(entry, dict):
            return set().union(*map(shown, entry.values()))
        return set().union(*map(shown, entry)) if isinstance(entry, list) else {entry}

    docs = ROOT / "docs"
    assert shown(settings["nav"]) == {str(path.relative_to(docs)) for path in docs.glob("**/*.md")}
