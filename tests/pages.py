"""`python -m tests.pages`: bring the knobs and decisions in `docs/systems/` up to date with `conf/system/`
and the systems' docstrings.

A page is `# NAME`, what the system does, and three sections: knobs (a table of its yaml), decisions (from its
module's docstring) and the picture that shows it working. Knobs and decisions are written here, the rest by
hand.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF, PAGES = ROOT / "conf" / "system", ROOT / "docs" / "systems"
MADE = {"Knobs", "Decisions"}


def knobs(yaml: str) -> str:
    """A table of the keys of a system's yaml: each with its default and its comment."""
    rows = ["| `system.` | default | |", "|---|---|---|"]
    for line in yaml.splitlines():
        found = re.match(r"(\w+): *(\"[^\"]*\"|[^#]*?) *(?:# *(.*))?$", line)
        if found and found[1] != "_target_" and found[2]:
            rows.append(f"| `{found[1]}` | `{found[2]}` | {(found[3] or '').replace(' | ', ' or ')} |")
    return "\n".join(rows) if len(rows) > 2 else "None."


def decisions(module: Path) -> str:
    """What follows "Decisions" in a module's docstring; "Departures" as a paragraph of its own."""
    text = ast.get_docstring(ast.parse(module.read_text()))
    text = text[re.search(r"^Decisions:?", text, re.M).end() :].strip()
    return re.sub(r"\s*^Departures: *", "\n\nDepartures from the paper: ", text, flags=re.M)


def up_to_date(page: str, name: str) -> str:
    """The page with its made sections replaced."""
    yaml = (CONF / f"{name}.yaml").read_text()
    module = ROOT / f"{re.search(r'_target_: *([a-z_.]+)', yaml)[1].strip('.').replace('.', '/')}.py"
    made = {"Knobs": knobs(yaml), "Decisions": decisions(module)}
    parts = re.split(r"^## (.*)\n", page, flags=re.M)
    for at in range(1, len(parts), 2):
        if parts[at] in MADE:
            parts[at + 1] = f"\n{made[parts[at]]}\n\n"
        parts[at] = f"## {parts[at]}\n"
    return "".join(parts)


def main() -> int:
    for path in sorted(PAGES.glob("*.md")):
        if path.stem != "README":
            path.write_text(up_to_date(path.read_text(), path.stem))
    return 0


if __name__ == "__main__":
    sys.exit(main())
