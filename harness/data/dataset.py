"""What a dataset is: the base of those that a config names by `_target_`."""

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.base.code import code_of
from harness.base.errors import InputError, machine_said
from harness.base.machine import check_machine
from harness.data.csr import is_symmetric
from harness.data.graph import Graph, validate

HASHED = 64 << 20  # bytes up to which a file is known by its content; beyond, by size and time of change


@dataclass
class Dataset:
    """Base of every dataset: a dataclass whose fields are its knobs, and `load`.

    name   what tables call the graph
    """

    name: str

    def __post_init__(self) -> None:
        if not self.name.strip("."):  # no folder of runs can have it
            raise InputError(f'name="{self.name}" names no graph: give the data set\'s name')

    @classmethod
    def _missing_method(cls) -> str | None:
        """The method that a dataset must define and this one does not; None where it is complete."""
        return "load(self, data_dir, seed)" if cls.load is Dataset.load else None

    @property
    def label(self) -> str:
        """What run folders and messages call the graph."""
        return self.name

    @property
    def changed_note(self) -> str:
        """What messages call the graph of an earlier run whose fingerprint has changed since; "" where they
        shall not mention the change."""
        return "a graph that its dataset makes otherwise now"

    @property
    def refuses_changed(self) -> bool:
        """Whether a finished run whose graph has changed since is refused by an error."""
        return False

    def check_there(self, data_dir: Path) -> None:
        """Raise InputError where a file of the graph is missing: a sweep asks before it starts."""

    def load(self, data_dir: Path, seed: int) -> Graph:
        """The graph with its split, which `seed` draws where it is a random one. Raw files lie below
        `data_dir`."""
        raise NotImplementedError

    def files(self, data_dir: Path) -> Iterable[Path]:
        """The raw files that `load` reads: their content is part of the fingerprint."""
        return ()

    def fingerprint(self, data_dir: Path, seed: int) -> dict[str, Any]:
        """Everything that determines what `load` returns, as plain values without absolute paths: every
        field, the seed, the files, and the code of the class's module. It is the graph's key in the cache."""
        cls = type(self)
        return {
            "dataset": f"{cls.__module__}.{cls.__qualname__}",
            "fields": dataclasses.asdict(self),
            "code": code_of(cls.__module__),
            "seed": seed,
            "files": identities(self.files(data_dir)),
        }

    def graph(self, data_dir: Path, seed: int) -> Graph:
        """The graph that `load` returns, validated. Raises InputError where it is not a usable `Graph`, or a
        file cannot be read."""
        try:
            graph = self.load(data_dir, seed)
        except OSError as error:  # the cache, which asks for the graph, would take it for an error of its own
            check_machine(error, f'dataset "{self.name}"')
            raise InputError(f'dataset "{self.name}": {machine_said(error) or error}') from None
        if not isinstance(graph, Graph):
            raise InputError(
                f'dataset "{self.name}" gave a {type(graph).__name__}; its load must return a'
                " harness.data.graph.Graph"
            )
        validate(graph)
        if graph.symmetric and not is_symmetric(graph.indptr, graph.indices, graph.weights):
            raise InputError(
                f"{graph.name}: symmetric is true, but not every edge has its reverse with the same weight;"
                " give symmetric=False, or the edges that harness.data.csr makes with symmetrise=True"
            )
        return graph


def identities(paths: Iterable[Path]) -> dict[str, Any]:
    """What identifies each file, by its name, since folders may move. A later file of the same name has its
    place behind it."""
    found: dict[str, Any] = {}
    for place, path in enumerate(paths):
        found[f"{path.name}/{place}" if path.name in found else path.name] = identity_of(path)
    return found


def identity_of(path: Path) -> dict[str, Any]:
    """What identifies a raw file in a fingerprint: the SHA-256 of its content, or, for a file of more than
    HASHED bytes, its size and time of change. Raises InputError where the file cannot be read."""
    try:
        status = path.stat()
        if status.st_size > HASHED:
            return {"size": status.st_size, "changed_ns": status.st_mtime_ns}
        return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    except FileNotFoundError as error:
        raise InputError(f'file "{path}" cannot be read: {error.strerror}; put it there') from None
    except OSError as error:
        check_machine(error, path)
        mend = "make it a file that this user may read"
        raise InputError(f'file "{path}" cannot be read: {error.strerror}; {mend}') from None
