"""The real data sets, one file per data set: where its raw files lie, who reads them, what is known of it.

A file `NAME.py`, with "_" for each "-" of the data set's name, holds one `SET`, and its docstring says what
to cite; its yaml in `conf/dataset` lets `dataset=NAME` choose it. Nothing else needs to know of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

from harness.data.raw import Raw

NAMES = tuple(sorted(path.stem.replace("_", "-") for path in Path(__file__).parent.glob("[a-z]*.py")))


@dataclass(frozen=True)
class RealSet:
    """One data set.

    folders    where its files may lie under data_dir, in any case; the first is where a download puts them
    files      what `read` takes, in its order, relative to the folder
    read       (*paths, symmetrise=...) -> Raw
    vertices, edges, features, classes   of the graph; edges are directed, in both directions
    homophily  share of edges between equal labels; None where it was not measured
    splits     sizes of its own split (training, validation, test); None where it has none or they are unknown
    own_split  whether the files hold splits
    size       of the raw files in bytes; 0 where it was not measured
    sha256     the known hashes of its files, by the file's name without its folder
    library    what downloads it where there is no url: a class of torch_geometric.datasets, or "ogb"
    url        where its files are, each under its own name; "" where only a library can fetch them (Google
               Drive, zip archives)
    origin     where the files come from, in words, where there is no url; for "ogb" its archive
    licence    of the data
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[..., Raw]
    vertices: int
    edges: int
    features: int
    classes: int
    homophily: float | None = None
    own_split: bool = True
    splits: tuple[int, int, int] | None = None
    size: int = 0
    sha256: Mapping[str, str] = field(default_factory=dict)
    library: str = ""
    url: str = ""
    origin: str = ""
    licence: str = "not stated"


@cache
def one(name: str) -> RealSet:
    """The data set `name`, one of NAMES."""
    found: RealSet = import_module(f"{__name__}.{name.replace('-', '_')}").SET
    return found
