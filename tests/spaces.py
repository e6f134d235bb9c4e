"""`python -m tests.spaces`: the table of docs/howto/tune.md, which values `halobench tune` chooses from."""

import yaml

from harness.run import space
from tests.kept import with_tables
from tests.pages import CONF, ROOT

PAGE, COMMAND = ROOT / "docs" / "howto" / "tune.md", "python -m tests.spaces"
FOLDER = ROOT / "conf" / space.FOLDER


def table() -> str:
    common = space.read("vanilla")
    rows = ["| `system=` | key | values |", "|---|---|---|"]
    rows += [f"| all | `{key}` | {values} |" for key, values in common.items()]
    for path in sorted(CONF.glob("*.yaml")):
        own = {key: values for key, values in space.read(path.stem).items() if key not in common}
        rows += [f"| `{path.stem}` | `{key}` | {values} |" for key, values in own.items()]
    return "\n".join(rows)


def files() -> set[str]:
    """The systems that have a file of their own."""
    return {path.stem for path in FOLDER.glob("*.yaml") if yaml.safe_load(path.read_text())} - {space.COMMON}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(), COMMAND, table()))
