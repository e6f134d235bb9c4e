"""`python -m tests.papers`: bring the verdicts in docs/papers and README up to date with results/reference.

A page is `# PAPER`, what held, what did not and why, by hand, and the section "Verdicts", which is written
here: a row per part of each published figure, table and claim.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from harness.claims import published, reference, table
from harness.claims.decide import decided
from harness.claims.evaluate import Result
from harness.run.runner import Places

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "papers"
COUNTS = re.compile(r"(?<=<!-- from results/reference: python -m tests.papers -->\n).*?(?=\n<!-- -->)", re.S)


def results(root: Path = ROOT) -> list[Result]:
    """What is kept; no run is read."""
    nothing = root / "results" / "none"
    return decided(None, Places(nothing, nothing, nothing, None), root / reference.FOLDER)


def verdicts(found: Sequence[Result]) -> str:
    """Counts and a row per part, or per verdict on a table's series of cells, of one paper's."""
    rows = ["| | part | published | here | verdict |", "|---|---|---|---|---|"]
    before = ""
    for line in table.lines(found):
        entry = published.entry(line.entry)
        name = f"{entry.label}: {entry.title}" + (" (text uncertain)" if entry.uncertain else "")
        why = f" ({line.verdict.why})" if line.verdict.why else ""
        cells = [
            "" if name == before else name,
            line.says,
            line.published,
            line.ours,
            f"**{line.verdict.word}**{why}",
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        before = name
    return "\n".join([filled(found), "", *rows])


def counted(found: Sequence[Result]) -> list[str]:
    """Counts without the line that says where they are from, which the page says itself."""
    return [line for line in table.counts(found) if not line.startswith("Verdicts kept")]


def filled(found: Sequence[Result]) -> str:
    """The counts as a paragraph."""
    return textwrap.fill(" ".join(counted(found)), 110)


def up_to_date(page: str, paper: str, found: Sequence[Result]) -> str:
    """The page with its verdicts replaced."""
    head, _, _ = page.partition("\n## Verdicts\n")
    own = [each for each in found if published.entry(each.entry).paper == paper]
    return f"{head}\n## Verdicts\n\n{verdicts(own)}\n"


def readme(text: str, found: Sequence[Result]) -> str:
    """README with its counts replaced."""
    return COUNTS.sub(filled(found), text)


def main(root: Path = ROOT) -> int:
    found = results(root)
    for path in sorted((root / "docs" / "papers").glob("*.md")):
        path.write_text(up_to_date(path.read_text(), path.stem, found))
    path = root / "README.md"
    path.write_text(readme(path.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
