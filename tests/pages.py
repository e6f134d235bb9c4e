"""`python -m tests.pages`: bring the knobs in `docs/systems/` up to date with `conf/system/`.

A page is `# NAME`, what the system does, and three sections: knobs (where its yaml has them), decisions
(where its module has them) and the picture that shows it working. Knobs and decisions are written here, the
rest by hand. Where a system has no page, one is made of its docstring and yaml, without a picture.
docs/systems.md and mkdocs.yml list the pages.
"""

import ast
import re
import sys
from collections.abc import Iterable
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


def decisions(module: Path, root: Path) -> str:
    """Where a module's docstring is, which the site shows in this place."""
    name = ".".join(module.relative_to(root).with_suffix("").parts)
    options = "options: {members: false, show_root_heading: false}"
    return f"The first lines of `{module.relative_to(root)}`:\n\n::: {name}\n    {options}"


def docstring(module: Path) -> str:
    """A module's docstring before the line that begins with "Decisions"."""
    text = ast.get_docstring(ast.parse(module.read_text())) or ""
    return re.split(r"^Decisions", text, flags=re.M)[0].strip()


def module_of(yaml: str, root: Path) -> Path:
    return root / f"{re.search(r'_target_: *([a-z_.]+)', yaml)[1].strip('.').replace('.', '/')}.py"


def first(name: str, conf: Path = CONF, root: Path = ROOT) -> str:
    """A page for a system that has none: what its docstring says, knobs and decisions."""
    title, _, body = docstring(module_of((conf / f"{name}.yaml").read_text(), root)).partition("\n")
    title = re.sub(rf"(?i)^{name}: ", "", title)  # the page's name is said
    page = f"# {name}: {title.removesuffix('.')}\n\n{body.strip()}\n\n## Knobs\n\n## Decisions\n"
    return up_to_date(page, name, conf, root).rstrip() + "\n"


def up_to_date(page: str, name: str, conf: Path = CONF, root: Path = ROOT) -> str:
    """The page with its made sections replaced."""
    yaml = (conf / f"{name}.yaml").read_text()
    made = {"Knobs": knobs(name, yaml), "Decisions": decisions(module_of(yaml, root), root)}
    parts = re.split(r"^## (.*)\n", page, flags=re.M)
    for at in range(1, len(parts), 2):
        if parts[at] in MADE:
            parts[at + 1] = f"\n{made[parts[at]]}\n\n"
        parts[at] = f"## {parts[at]}\n"
    return "".join(parts)


def listed(pages: Path = PAGES) -> str:
    """A table of the systems: what each does, by the title of its page."""
    rows = ["| `system=` | what it does |", "|---|---|"]
    for path in sorted(pages.glob("*.md")):
        name, named, title = path.read_text().partition("\n")[0].removeprefix("# ").partition(": ")
        if named and path.stem == name:
            rows.append(f"| [`{name}`](systems/{name}.md) | {title} |")
    return "\n".join(rows)


def navigated(site: str, names: Iterable[str]) -> str:
    """mkdocs.yml with a line for the page of every system, new ones behind those that are there."""
    lines = re.findall(r"^ +- (\w+): systems/\1\.md\n", site, re.M)
    last = re.search(rf"^( +)- {lines[-1]}: .*\n", site, re.M)
    new = [f"{last[1]}- {name}: systems/{name}.md\n" for name in names if name not in lines]
    return site[: last.end()] + "".join(new) + site[last.end() :]


def main(conf: Path = CONF, pages: Path = PAGES, root: Path = ROOT) -> int:
    names = sorted(path.stem for path in conf.glob("*.yaml"))
    for name in names:
        path = pages / f"{name}.md"
        page = path.read_text() if path.exists() else first(name, conf, root)
        path.write_text(up_to_date(page, name, conf, root))
    index = pages.with_suffix(".md")
    if index.exists():
        index.write_text(with_tables(index.read_text(), COMMAND, listed(pages)))
        site = root / "mkdocs.yml"
        site.write_text(navigated(site.read_text(), names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
