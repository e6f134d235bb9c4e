"""A bundle: the runs of a submission in one folder, without what is large.

NAME/submission.yaml                  `Submission`: who, under what licence, in which track, which runs
NAME/runs/GRAPH/RUN/                  the `FILES` of each run; its summary has the digests of its other files
NAME/code/                            Python files of systems that are not of this tree"""

import dataclasses
import hashlib
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import yaml

import harness
from harness.base import yaml_text
from harness.base.disk import refuse_links
from harness.base.errors import InputError, choice, first_line, typed, writing
from harness.base.target import TREE
from harness.base.terminal import printable
from harness.results import consistency, files, track
from harness.results.reader import BUNDLE, Trace, find_runs, frame_of
from harness.results.report.compare import labels
from harness.results.report.groups import Group, Run
from harness.results.summary import graph_name, summarise

HEAD, RUNS, CODE = BUNDLE, "runs", "code"
FILES = (
    *("config.yaml", "environment.json", "shards.json", "resolved.json", "summary.json"),
    *("epochs.parquet", "comm.parquet", "metrics.parquet"),
)
TRACKS = (track.FIXED, track.TUNED)
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")
RUN = re.compile(r"[\w.-]+/[\w.-]+")
LARGEST = 64 * 2**20  # bytes of a file of a bundle
# Keys of a summary that cannot be derived from a bundle, since it leaves out the spans and other files.
OF_SPANS = frozenset({"core_share", "cpu_slowest", "notes", "files"})
# Blocks of the config in which the rows of a ranking are alike; in the tuned track those of TUNED may differ.
SETTING = ("dataset", "model", "optimiser", "schedule", "evaluate", "score")
TUNED = ("model", "optimiser", "schedule")


@dataclass
class Submission:
    """The head of a bundle.

    name       of the folder: small letters, digits and hyphens
    by         who hands it in
    licence    of the bundle's files, as CC-BY-4.0
    track      "fixed": all rows at one setting; "tuned": each at the setting that its trials chose
    trials     runs that each row of a tuned track was chosen from
    note       what else is to be known
    halobench  version that made the bundle
    runs       SHA-256 of each run's summary.json, by the run's folder below `runs`
    """

    name: str
    by: str
    licence: str
    track: str = "fixed"
    trials: int = 0
    note: str = ""
    halobench: str = harness.__version__
    runs: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InputError(
                f"name={self.name} (the bundle's folder, so the last part of --out): give up to 50 small"
                " letters, digits and hyphens"
            )
        choice("track", self.track, TRACKS)
        for key in ("by", "licence"):
            if not getattr(self, key).strip() or len(getattr(self, key)) > 200:
                raise InputError(f"{key}={getattr(self, key)!r}: give 1 to 200 letters")
        for run in self.runs:
            if not RUN.fullmatch(run) or ".." in run:
                raise InputError(f"runs.{run} is no folder of a run: give GRAPH/RUN")
        if (self.track == "tuned") != (self.trials > 0):
            mend = "give --trials N" if self.track == "tuned" else "leave out --trials"
            raise InputError(f"track={self.track} trials={self.trials}: {mend}")


class Submitted(Run):
    """A run of a bundle, which leaves out its spans. Nothing is read of it before it is asked for, so that
    `check` can say what is wrong with each."""

    def __init__(self, path: Path):
        self.trace, self.path = _Spanless(path), path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What its summary.json says. InputError where the run had not finished."""
        if self.trace.summary is None:
            raise InputError(f"{self.path} has not finished: let it finish, or leave it out")
        return self.trace.summary

    @property
    def name(self) -> str:
        return self.system

    @property
    def own_graph(self) -> bool:
        """Whether its graph is a file that the user had: dataset=npz."""
        return self.keys.get("dataset.path") is not None

    @property
    def module(self) -> str:
        """The first part of the name of its system's module."""
        return str(self.keys.get("system._target_", "")).partition(".")[0]

    def setting(self, track: str) -> tuple[Any, ...]:
        """What a run has in common with those that it is ranked with: graph, workers, epochs and the keys of
        SETTING. The partition is not among them, since a system over vertex-cuts brings its own."""
        blocks = [block for block in SETTING if track == "fixed" or block not in TUNED]
        alike = sorted((k, str(v)) for k, v in self.keys.items() if k.partition(".")[0] in blocks)
        return graph_name(self.trace), self.keys.get("workers"), self.keys.get("epochs"), tuple(alike)

    def check(self) -> None:
        """Raise InputError where its files contradict each other or its summary does not follow from them."""
        told = self.summary
        consistency.check(self.trace, spans=False)
        found = files.finite(summarise(self.trace))
        for key in sorted((told.keys() | found.keys()) - OF_SPANS):
            if not same(told.get(key), found.get(key)):
                raise InputError(f"{self.path}/summary.json: its {key} does not follow from its tables")


class _Spanless(Trace):
    @cached_property
    def spans(self) -> pd.DataFrame:
        return frame_of(self._tables.table("spans"), self.run_dir)


def same(one: Any, other: Any) -> bool:
    """Whether two values of summaries are equal but for the last bits of a mean."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float | int):
        return bool(np.isclose(one, other, rtol=1e-9, atol=0))
    return bool(one == other)


@dataclass
class Bundle:
    """A bundle that was read: its folder, its head, and its runs by their folder below `runs`."""

    folder: Path
    head: Submission
    runs: dict[str, Submitted]

    @cached_property
    def rows(self) -> list[Group]:
        """The runs, grouped: those of a row differ in their seed alone. Its label says what tells it apart
        from the others."""
        together: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs.values():
            keys = sorted((key, str(value)) for key, value in run.keys.items() if key != "seed")
            together[repr(keys)].append(run)
        names = labels([runs[0] for runs in together.values()])
        return [Group(runs, label=name) for runs, name in zip(together.values(), names)]

    @property
    def by_setting(self) -> dict[tuple[Any, ...], list[Group]]:
        """The rows that are ranked together, by what they have in common."""
        together: dict[tuple[Any, ...], list[Group]] = defaultdict(list)
        for row in self.rows:
            together[cast(Submitted, row.first).setting(self.head.track)].append(row)
        return together


def read(folder: Path) -> Bundle:
    """The bundle in a folder. Raises InputError where the folder holds no bundle, lacks a file of it or holds
    other files, or where its head cannot be used. The runs are not checked."""
    refuse_links(folder)
    path = folder / HEAD
    if not path.is_file():
        raise InputError(f"{folder} holds no {HEAD}: give a folder that halobench submit has made")
    try:
        given = yaml_text.parsed(yaml_text.read(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {first_line(error)}") from None
    if not isinstance(given, dict):
        raise InputError(f"{path} holds no keys: give name, by, licence, track and runs")
    head = typed(Submission, given, str(path))
    if head.name != folder.resolve().name:
        raise InputError(f"{path} is of the bundle {head.name}: give its folder that name")
    known = {path, *(folder / RUNS / run / name for run in head.runs for name in FILES)}
    for each in files_below(folder):
        if each not in known and each.relative_to(folder).parts[0] != CODE:
            raise InputError(
                f"{printable(str(each))} is no file of this bundle: remove it, or name its run in {HEAD}"
            )
        if each.stat().st_size > LARGEST:
            raise InputError(f"{each} has more than {LARGEST} bytes: leave its run out")
    for run in head.runs:
        for name in FILES:
            if not (folder / RUNS / run / name).is_file():
                raise InputError(f"{folder / RUNS / run / name} is missing: make the bundle again")
    return Bundle(folder, head, {run: Submitted(folder / RUNS / run) for run in head.runs})


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder, at any depth, in ascending order."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def gather(paths: Sequence[str], folder: Path, head: Submission, code: Sequence[Path] = ()) -> Bundle:
    """The bundle that `write` will put into `folder`, which must not be there yet: the runs at or below
    `paths`, which stay where they are. Of runs that `halobench tune` made, it has those of its track.

    code   Python files of systems that are not of this tree

    Raises InputError where a run has not finished or contradicts itself, two have one name and graph, or
    `code` lacks a system's file or has another file than runs import here."""
    if folder.exists():
        raise InputError(f"out={folder} is there already: give another folder, or remove it")
    for path in code:
        if not path.is_file():
            raise InputError(f"code={path} is not a file: give the Python file of a system")
        imported = _imported(path.stem)
        if imported and imported.read_bytes() != path.read_bytes():
            raise InputError(f"code={path} is not the {path.stem} that runs import here: give {imported}")
    found: dict[str, Submitted] = {}
    for path in dict.fromkeys(each.resolve() for each in find_runs(paths)):
        run, name = Submitted(path), f"{path.parent.name}/{path.name}"
        if run.track not in ("", head.track):
            continue
        if name in found:
            raise InputError(f"{found[name].path} and {path} are both {name} in a bundle: give one of them")
        found[name] = run
    if not found:
        raise InputError(f"track={head.track} has no run in {' '.join(paths)}: give the other track")
    stems = {path.stem for path in code}
    for run in found.values():
        run.check()
        if run.module not in TREE and run.module not in stems:
            file = _imported(run.module) or Path("PATH/TO", f"{run.module}.py")
            raise InputError(f"{run.path} runs code of {run.module}: add --code {file}")
    digests = {name: digest(run.path / "summary.json") for name, run in found.items()}
    return Bundle(folder, dataclasses.replace(head, runs=digests), found)


def _imported(module: str) -> Path | None:
    """The Python file that a run here would import as `module`, which is not imported to find it. None where
    there is none, or where it is a package."""
    spec = PathFinder.find_spec(module)
    file = Path(spec.origin) if spec and spec.origin else None
    return file if file and file.name == f"{module}.py" else None


def write(bundle: Bundle, code: Sequence[Path] = ()) -> Bundle:
    """Copy a gathered bundle and its `code` into its folder; returns the bundle as read from there."""
    folder = bundle.folder
    with writing(folder, "give another --out"):
        folder.mkdir(parents=True)
    for name, run in bundle.runs.items():
        (folder / RUNS / name).mkdir(parents=True)
        for file in FILES:
            shutil.copyfile(run.path / file, folder / RUNS / name / file)
    if code:
        (folder / CODE).mkdir()
    for path in code:
        shutil.copyfile(path, folder / CODE / path.name)
    files.write_text_atomic(folder / HEAD, yaml.safe_dump(dataclasses.asdict(bundle.head), sort_keys=False))
    return read(folder)
