"""Write the files of a system, a data set or an experiment of one's own, which run as they are: change them.

halobench new system NAME        a system, its yaml, an experiment, a test, a README and a Dockerfile
halobench new dataset NAME       a data set, its yaml, a test and a README
halobench new experiment NAME    rows to compare and what is claimed of them, for halobench figures --from
"""

import keyword
import re
import shlex
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from string import Template

from harness.base.errors import InputError, choice, writing
from harness.base.places import CONF
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.target import TREE

TEMPLATES = Path(__file__).parent / "templates"
KINDS = ("system", "dataset", "experiment")
# By kind, the commands to type next; $at is the folder that was written.
NEXT = {
    "system": (
        "PYTHONPATH=$at halobench check system=$name --config-dir $at/conf",
        "PYTHONPATH=$at halobench figures --from $at/experiments --config-dir $at/conf",
    ),
    "dataset": ("PYTHONPATH=$at halobench --config-dir $at/conf dataset=$name workers=2 epochs=5",),
    "experiment": ("halobench figures --from $at",),
}


@command("halobench new")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__, formatter_class=AS_WRITTEN)
    parser.add_argument("kind", help="system, dataset or experiment")
    parser.add_argument("name", help="small letters, digits and underscores, as my_idea")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where the files go (default: NAME)")
    given = parser.parse_args(words)
    choice("kind", given.kind, KINDS)
    name = given.name
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,49}", name) or keyword.iskeyword(name):
        raise InputError(f'name="{name}": give up to 50 small letters, digits and underscores, as my_idea')
    if (Path(CONF) / given.kind / f"{name}.yaml").exists():
        raise InputError(f'name="{name}" is one of this program\'s own: give another')
    module = PathFinder.find_spec(name)
    if given.kind != "experiment" and (
        name in (*TREE, *sys.stdlib_module_names) or (module and module.origin)
    ):
        raise InputError(f'name="{name}" is that of a Python module here: give another')
    folder = given.out or Path(name)
    files = rendered(given.kind, name)
    # A folder may hold several systems. Files that have one name for all of them are written once.
    common = rendered(given.kind, f"{name}_2").keys()
    files = {path: text for path, text in files.items() if path not in common or not (folder / path).exists()}
    there = [path for path in files if (folder / path).exists()]
    if there:
        raise InputError(f"{folder / there[0]} is there already: give another name, or another --out")
    for path, text in files.items():
        with writing(folder / path, "give another --out"):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        print(folder / path)
    print("next:")
    for line in NEXT[given.kind]:
        print(f"  {Template(line).substitute(at=shlex.quote(str(folder)), name=name)}")


def rendered(kind: str, name: str) -> dict[Path, str]:
    """The files of a kind by their path in the folder; `my_idea` has the class `MyIdea`."""
    values = {"name": name, "Class": "".join(part.capitalize() for part in name.split("_"))}
    found = sorted((TEMPLATES / kind).rglob("*.txt"))
    return {
        Path(Template(str(path.relative_to(TEMPLATES / kind).with_suffix(""))).substitute(values)): Template(
            path.read_text()
        ).substitute(values)
        for path in found
    }
