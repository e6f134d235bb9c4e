"""halobench import KIND SOURCE --out GRAPH.npz: a graph in another format as an npz to train on.

edges EDGES --features FILE [--labels FILE]   an edge list and tables, CSV, TSV or spaces, gzipped or not
pyg FILE                                      a torch_geometric Data that torch.save wrote
"""

import argparse
from pathlib import Path

from harness.base.errors import InputError, writing
from harness.base.scratch import scratch
from harness.base.subcommand import Parser, command
from harness.data.importing.apart import apart
from harness.data.importing.imported import ImportedGraph, write


@command("halobench import")
def main(words: list[str], program: str) -> None:
    given = _parser(program).parse_args(words)
    if given.out.suffix != ".npz":
        raise InputError(f'--out "{given.out}" does not end in .npz: give GRAPH.npz')
    if given.out.exists() and not given.overwrite:
        raise InputError(f'--out "{given.out}" is there already: give another file, or --overwrite')
    if not given.out.parent.is_dir():
        raise InputError(f'--out "{given.out}" is in no folder that exists: make {given.out.parent} first')
    directed = True if given.directed else False if given.undirected else None
    files = [path for name in ("source", "features", "labels") if (path := getattr(given, name, None))]
    with (
        writing(f'--out "{given.out}"', "give another place"),
        scratch(parent=given.out.parent, prefix=".import.") as folder,
    ):
        made = folder / given.out.name
        work = lambda: write(_read(given), made, given.out, directed)  # noqa: E731
        said = apart(work, given.source, files)
        made.replace(given.out)
    print("\n".join(said))


def _read(given: argparse.Namespace) -> ImportedGraph:
    """The graph of the source, by the module for its kind, which is imported when it is needed."""
    if given.kind == "pyg":
        from harness.data.importing import pyg

        return pyg.read(given.source)
    from harness.data.importing import edge_list

    names = ("header", "rows_in_order", "label_column", "split_column", "drop")
    how = {name: getattr(given, name) for name in names}
    return edge_list.read(given.source, given.features, given.labels, **how)


HELP = {
    "edges": "an edge list (source, target and, where there is a third column, weight) with"
    " tables of vertices",
    "pyg": "a torch_geometric Data, or the dict of its tensors, that torch.save wrote",
}


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=program,
        description="Write a graph in another format as an npz to train on, and say what was assumed.",
    )
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind, text in HELP.items():
        command = kinds.add_parser(kind, help=text, description=text)
        command.add_argument("source", type=Path, help="what to read")
        command.add_argument("--out", type=Path, required=True, metavar="GRAPH.npz", help="the file to write")
        command.add_argument(
            "--overwrite", action="store_true", help="replace the file to write if it is there"
        )
        direction = command.add_mutually_exclusive_group()
        direction.add_argument("--directed", action="store_true", help="keep edges as they are listed")
        direction.add_argument("--undirected", action="store_true", help="add the reverse of every edge")
        if kind == "edges":
            _add_table_options(command)
    return parser


def _add_table_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--features",
        type=Path,
        required=True,
        metavar="FILE",
        help="a row per vertex: its id, then its features; the labels too if --labels is not given",
    )
    command.add_argument(
        "--labels", type=Path, metavar="FILE", help="a row per vertex: its id, its label, its split if known"
    )
    command.add_argument(
        "--label-column",
        metavar="NAME",
        help="the column of labels (default: label, labels, y, class or target)",
    )
    command.add_argument(
        "--split-column",
        metavar="NAME",
        help="the column that holds train, val, test or nothing (default: split, fold or set)",
    )
    command.add_argument(
        "--drop", action="append", default=[], metavar="NAME", help="a column to leave out; may be repeated"
    )
    command.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line of every table names its columns (default: decided by each"
        " table's first lines)",
    )
    command.add_argument(
        "--rows-in-order", action="store_true", help="tables have no ids: row i describes vertex i, from 0"
    )
