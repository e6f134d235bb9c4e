"""What is known of a real data set: where its raw files lie, who reads them, its figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.data.raw import Raw


@dataclass(frozen=True)
class RealSet:
    """One data set.

    cite       what to cite, or what it is made of
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

    cite: str
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
