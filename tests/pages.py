"""`python -m tests.pages`: bring the knobs in `docs/systems/` up to date with `conf/system/`.

A page is `# NAME`, what the system does, and three sections: knobs (where its yaml has them), decisions
(where its module has them) and the picture that shows it working. Knobs and decisions are written here, the
rest by hand. docs/systems.md lists the pages.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.kept import with_tables

ROOT = Path(__file__).resolve().parent.parent
CONF, PAGES = ROOT / "conf" / "system", ROOT / "docs" / "systems"
MADE, COMMAND = {"Knobs", "Decisions"}, "python -m tests.pages"


def knobs(name: str, yaml: str) -> str:
    """Where a system's yaml is, which the site shows in this place: its keys, defaults and comments."""
    if not re.search(r"^(?!_target_)\w+:", yaml, re.M):
        return "None."
    path = f"conf/system/{name}.yaml"
    return f'Keys below `system.`, with their defaults, in `{path}`:\n\n```yaml\n--8<-- "{path}"\n```'


def decisions(module: Path) -> str:
    """Where a module's docstring is, which the site shows in this place."""
    name = ".".join(module.relative_to(ROOT).with_suffix("").parts)
    options = "options: {members: false, show_root_heading: false}"
    return f"The first lines of `{module.relative_to(ROOT)}`:\n\n::: {name}\n    {options}"


def module_of(yaml: str) -> Path:
    return ROOT / f"{re.search(r'_target_: *([a-z_.]+)', yaml)[1].strip('.').replace('.', '/')}.py"


def up_to_date(page: str, name: str) -> str:
    """The page with its made sections replaced."""
    yaml = (CONF / f"{name}.yaml").read_text()
    made = {"Knobs": knobs(name, yaml), "Decisions": decisions(module_of(yaml))}
    parts = re.split(r"^## (.*)\n", page, flags=re.M)
    for at in range(1, len(parts), 2):
        if parts[at] in MADE:
            parts[at + 1] = f"\n{made[parts[at]]}\n\n"
        parts[at] = f"## {parts[at]}\n"
    return "".join(parts)


def listed() -> str:
    """A table of the systems: what each does, by the title of its page."""
    rows = ["| `system=` | what it does |", "|---|---|"]
    for path in sorted(PAGES.glob("*.md")):
        name, named, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(": ")
        if named and path.stem == name:
            rows.append(f"| [`{name}`](systems/{name}.md) | {title} |")
    return "\n".join(rows)


def main() -> None:
    for path in sorted(CONF.glob("*.yaml")):
        page = PAGES / f"{path.stem}.md"
        page.write_text(up_to_date(page.read_text(), path.stem))
    index = PAGES.with_suffix(".md")
    index.write_text(with_tables(index.read_text(), COMMAND, listed()))


if __name__ == "__main__":
    main()
