"""One page of finished runs, in one file that needs no network.

It says which system to take on each graph, and how to make every number again; it has pictures, and tables
that can be sorted. Runs of a system of one's own have a command there where --config-dir FOLDER names its
yaml and PYTHONPATH its module, as for the runs themselves."""

import shlex
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from harness.base.errors import InputError, check_place, writing
from harness.base.places import command_line, own_config, own_config_option
from harness.base.subcommand import RUN_HELP, Parser, command
from harness.cli.page import content
from harness.cli.page.layout import rendered
from harness.results.report import groups


@command("halobench report html")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__)
    parser.add_argument(
        "runs", nargs="*", default=["results"], metavar="RUN", help=f"{RUN_HELP} (default: results)"
    )
    parser.add_argument("--out", type=Path, default=Path("page.html"), help="the file (default: page.html)")
    parser.add_argument("--title", help="what stands above the page (default: the graphs' names)")
    parser.add_argument(
        "--figures",
        type=Path,
        metavar="DIR",
        help="PNG files that stand among the pictures, as `halobench figures` draws them",
    )
    given = parser.parse_args(words)
    options = {"out": given.out, "title": given.title, "figures": given.figures}
    again = [f"--{name}={value}" for name, value in options.items() if value]
    again += own_config_option()
    check_place("out", given.out)
    made_by = command_line(["halobench", "report", "html", *given.runs, *again], bool(own_config()))
    text = page(given.runs, made_by, given.title, given.figures)
    with writing(given.out, "give another --out"):
        given.out.write_text(text)
    print(f"{given.out}: {len(text) / 1e6:.1f} MB; open it in a browser")


def page(paths: Sequence[str], command: str, title: str | None = None, figures: Path | None = None) -> str:
    """The page of the runs at or below `paths`; the same text whenever it is made of the same finished
    runs.

    command   the command that makes the page again; the page shows it
    title     what stands above the page; None: the names of the graphs
    figures   a folder of PNG files that stand among the pictures
    """
    drawn = _images(figures) if figures else []
    compared, empty = groups.load(paths)
    environments: content.Environments = {}
    graphs = content.graphs(compared, environments)
    return rendered(
        "page.html.j2",
        title=title or ", ".join(dict.fromkeys(group.dataset for group in compared)),
        graphs=graphs,
        figures=drawn,
        environments=list(environments),
        given=shlex.join(paths),
        command=command,
        left_out=empty,
        runs=sum(len(group.runs) for group in compared),
    )


def _images(folder: Path) -> list[tuple[str, str]]:
    """(name, data URL) of each PNG file in a folder. InputError where there is none."""
    found = sorted(folder.glob("*.png"))
    if not found:
        raise InputError(
            f"figures={folder} holds no PNG file: give the folder that halobench figures drew into"
        )
    return [(path.stem, f"data:image/png;base64,{b64encode(path.read_bytes()).decode()}") for path in found]
