"""What an experiment's runs said, kept without the runs: a folder per experiment, as in results/reference/.

    claims.csv        a row per claim: what was measured, in full, and a fingerprint of what was asked;
                      verdicts follow from it and the claim by the rule (`harness.papers.claims.verdict`)
    runs.csv          a row per run: size, row, graph, seed, what was asked for, steps per epoch, rows asked
                      for by id per epoch, all measured; it decides claims on one of its columns that were
                      written later
    environment.json  of the first run; runs.csv names another machine or other code where there is one
    *.png             the pictures

There is no config.yaml, so that no reader takes a kept folder for a run's.
"""

import csv
import functools
import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from harness.base import yaml_text
from harness.base.errors import InputError, writing
from harness.base.places import own_config
from harness.papers.claims.claim import Claim, named
from harness.papers.claims.evaluate import (
    Folders,
    Measured,
    Result,
    compared,
    counted_once,
    result_of,
    results,
)
from harness.papers.claims.experiment import FOLDER as EXPERIMENTS
from harness.papers.claims.experiment import SIZES, Experiment, load
from harness.papers.claims.verdict import Verdict
from harness.results import files
from harness.results.report.columns import ALL
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Run
from harness.run import runner
from harness.run.config import graph_folder
from harness.run.runner import Places

FOLDER = Path("results/reference")
DESCRIPTION = "Description"  # of a PNG: the words of `style.save`
CLUSTER = re.compile(r"\bcluster=([\w/]+)")
MEND = "give another --keep"
# `order` is the verdict's word on the steps of a "descending" claim. `why` is the reason of that verdict, or
# why there is no value.
COLUMNS = ("entry", "part", "mean", "half", "seeds", "order", "why", "control", "twin", "size", "asked")


def asked(experiment: Experiment, claim: Claim, size: str) -> str:
    """A fingerprint of what a claim measures, of the runs that decide it and of the clusters that it models.
    It changes where a file that says one of these changes; what is printed and how it is judged does not
    count."""
    sweeps = [sweep for row in claim.needed for sweep in experiment.sweeps(row, size, claim.graph)]
    words = repr(claim.measure)
    clusters = CLUSTER.findall(words + repr(sweeps))  # RAPA cuts for the devices of a run's
    graphs = [named(graph) for graph in experiment.on(size, claim.graph)]
    fits = graphs if "fit=printed" in words else []
    said = claim.measurement, claim.control, sweeps, [_cluster(name, tuple(fits)) for name in clusters]
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


@functools.cache
def _cluster(name: str, fitted: Sequence[str]) -> str:
    """What a preset's file says of its devices and links, and of its fits to these graphs."""
    path = Path(runner.CONF) / "cluster" / f"{name}.yaml"
    if not path.exists():
        return name
    said = yaml_text.parsed(path.read_text())
    fits = [each for each in said.pop("fits", None) or () if each["graph"] in fitted]
    return repr(said) + repr(fits or "")


def keep(
    folder: Path, experiment: Experiment, found: Sequence[Result], folders: Folders, pictures: Iterable[Path]
) -> None:
    """Write what the runs of an experiment at one size say to a folder of the experiment's name in `folder`.

    found      the experiment's results
    folders    the run folders of a sweep
    pictures   files that are kept beside, in 256 colours

    What the folder held of this experiment is replaced once all is written. InputError where it cannot be
    written, or holds a larger size or something else.
    """
    place = folder / experiment.name
    (size,) = experiment.sizes
    check(place, size)
    runs = {
        (row, graph): [
            (" ".join(words), Run(path))
            for words, path in zip(runner.expand(sweep), folders(sweep), strict=True)
        ]
        for graph in experiment.sizes[size].graphs
        for row in experiment.rows_on(size, graph)
        for sweep in [experiment.sweep(row, size, graph)]
    }
    # The new folder is written beside the old one and takes its place at the end; the old one comes back
    # where that fails.
    with writing(place, MEND):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{experiment.name}-") as made:
            new = Path(made) / experiment.name
            new.mkdir()
            _table(runs, size).to_csv(new / "runs.csv", index=False)
            _claims(experiment, size, found).to_csv(new / "claims.csv", index=False)
            _, first = next(iter(runs.values()))[0]
            files.write_json_atomic(new / "environment.json", first.trace.environment)
            for picture in pictures:
                write_small(picture, new / picture.name)
            before = Path(made) / "before"
            if place.exists():
                place.rename(before)
            try:
                new.rename(place)
            except OSError:
                if before.exists():
                    before.rename(place)
                raise


def write_small(picture: Path, target: Path) -> None:
    """Write a picture with its description in 256 colours: it looks the same and takes two fifths of the
    bytes, which are kept for ever."""
    with Image.open(picture) as read:
        few = read.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        words = PngInfo()
        if DESCRIPTION in read.info:
            words.add_itxt(DESCRIPTION, read.info[DESCRIPTION])
        few.save(target, "PNG", optimize=True, dpi=read.info.get("dpi", (150, 150)), pnginfo=words)


def check(place: Path, size: str) -> None:
    """InputError where `place` holds something else than a kept experiment, or one of a larger size than
    `size`."""
    if not place.exists():
        return
    try:
        before = str(pd.read_csv(place / "runs.csv", usecols=["size"])["size"].iloc[0])
    except (OSError, ValueError, IndexError):
        raise InputError(
            f"{place} is there and keeps nothing of an experiment: {MEND}, or remove it"
        ) from None
    if before in SIZES and SIZES.index(before) > SIZES.index(size):
        raise InputError(f"keep={place.parent} has {place.name} of size {before}, larger than {size}: {MEND}")


def decided(own: Path | None, places: Places, kept: Path | None = None) -> list[Result]:
    """The results of all experiments over the runs in `places`: those of the folder `own` first, which
    replace the tree's of the same names.

    own    a folder with further experiments, or None
    kept   a folder whose verdicts stand in where runs are not there (`with_kept`)
    """
    experiments = load(own) if own else {}
    for name, plan in load(EXPERIMENTS).items():
        experiments.setdefault(name, plan)

    graphs = {path.name for path in places.results.glob("*") if any(path.glob("*/config.yaml"))}

    def folders(sweep: str) -> list[Path]:
        of_graph = ("dataset=", "dataset.path=", "dataset.name=")
        graph = " ".join(word for word in sweep.split() if word.startswith(of_graph))
        if not graphs or graphs.isdisjoint(_graph_folders(graph, own_config())):
            return [places.results / "none"]
        return runner.folders(sweep, places)

    found = results(experiments, folders)
    return with_kept(found, kept, experiments) if kept is not None else found


@functools.lru_cache(maxsize=256)
def _graph_folders(graph: str, own: Path | None) -> list[str]:
    """The names of the folders that hold runs on a sweep's graphs, with configs of the folder `own`. They
    depend on the graphs' names alone. Cached, since nearly all sweeps share few graphs."""
    return [graph_folder(run.dataset) for run in runner.composed(runner.expand(graph))]


def with_kept(found: Sequence[Result], folder: Path, experiments: Mapping[str, Experiment]) -> list[Result]:
    """Results in which a claim whose runs are not there, or only of a smaller size, is taken from a kept
    folder, its size marked "reference".

    What was measured otherwise, of other runs or on another cluster is not taken; the claim's words do not
    count. InputError that names a damaged file.
    """
    kept = {path.parent.name: _read(path) for path in sorted(folder.glob("*/claims.csv"))}
    planned = {id(claim) for plan in experiments.values() for claim in plan.claims}

    def taken(result: Result) -> Result:
        own = kept.get(result.experiment)
        if own is None or id(result.claim) not in planned:
            return result
        plan, claim = experiments[result.experiment], result.claim
        runs = folder / plan.name / "runs.csv"
        size = next((row["size"] for row in own.values()), None) or str(_runs(runs)["size"].iloc[0])
        if size not in plan.sizes or _rank(size) <= _rank(result.size):
            return result
        row = own.get(asked(plan, claim, size))
        measured = _measured(row) if row else _of_kept_runs(plan, claim, size, runs)
        if measured is None:
            return result
        return replace(result_of(plan.name, claim, measured, f"{size}, reference"), of=result.of)

    return counted_once([taken(result) for result in found])


def _of_kept_runs(plan: Experiment, claim: Claim, size: str, path: Path) -> Measured | None:
    """What kept runs say of a claim on a column of theirs, so that a claim may be written after them. None
    where one of its runs is not there in the same words, where rows have other seeds, or where a run has a
    cluster, whose file may have changed."""
    column = claim.value.column
    if not column or not plan.on(size, claim.graph):
        return None
    table = _runs(path)
    words = {row: list(map(_runs_of, plan.sweeps(row, size, claim.graph))) for row in claim.needed}
    every = [each for graphs in words.values() for own in graphs for each in own]
    if column not in table or any(each not in table.index or CLUSTER.search(each) for each in every):
        return None
    seeds = [tuple(table.loc[own, "seed"]) for graphs in words.values() for own in graphs]
    if len(set(seeds)) != 1:
        return None
    by_row = {
        row: np.array([table.loc[own, column].to_numpy(float) for own in graphs])
        for row, graphs in words.items()
    }
    return compared(claim, by_row, any("dataset=twin/" in each for each in every))


@functools.lru_cache(maxsize=1000)
def _runs_of(sweep: str) -> list[str]:
    """What is asked of each run of a sweep. Cached, since claims share rows."""
    return [" ".join(run) for run in runner.expand(sweep)]


@functools.cache
def _runs(path: Path) -> pd.DataFrame:
    """Kept runs by what was asked of each: their size, their seed, and all columns."""
    try:
        table = pd.read_csv(path, dtype={"size": str, "asked": str})
        numbers = ["seed", *(column for column in ALL if column in table)]
        table[numbers] = table[numbers].apply(pd.to_numeric)
        if table.empty:
            raise ValueError("no run")
        return table[["size", "asked", *numbers]].drop_duplicates("asked").set_index("asked")
    except (OSError, ValueError, KeyError):
        raise InputError(_mend(path)) from None


def _measured(row: Mapping[str, Any]) -> Measured:
    half = None if np.isnan(row["half"]) else row["half"]
    ours = None if np.isnan(row["mean"]) else Estimate(row["mean"], half, int(row["seeds"]))
    order = Verdict(row["order"], row["why"]) if row["order"] else None
    lost = row["why"] if ours is None and order is None else ""
    return Measured(ours, order, lost, row["control"] == "yes", row["twin"] == "yes")


def _rank(size: str) -> int:
    """The place of a size in SIZES; -1 of "", where nothing has been run."""
    return SIZES.index(size) if size in SIZES else -1


def _claims(experiment: Experiment, size: str, found: Sequence[Result]) -> pd.DataFrame:
    rows = []
    for each in found:
        if each.size == size and each.measured is not None:
            measured = each.measured
            ours = measured.ours or Estimate(float("nan"), None, 0)
            order = measured.order or Verdict("", measured.lost)
            told = ("yes" if flag else "" for flag in (measured.control, measured.twin))
            fingerprint = asked(experiment, each.claim, size)
            value = ours.mean, ours.half, ours.n, order.word, order.why
            rows.append((each.entry, each.says, *value, *told, size, fingerprint))
    return pd.DataFrame(rows, columns=COLUMNS)


def _table(runs: Mapping[tuple[str, str], Sequence[tuple[str, Run]]], size: str) -> pd.DataFrame:
    """A row per run with everything that was measured, in full precision; None where a run has no such
    value."""
    return pd.DataFrame(
        [
            {
                "size": size,
                "row": row,
                "graph": graph,
                "seed": run.seed,
                "asked": words,
                "code": run.code,
                "machine": run.machine,
                "steps": run.trace.steps,
                "rows_asked": _asked_by_id(run),
                **{key: column.value(run.summary) for key, column in ALL.items()},
            }
            for (row, graph), own in runs.items()
            for words, run in own
        ]
    )


def _asked_by_id(run: Run) -> float | None:
    """Rows of layers per epoch that workers asked each other for by ids of 4 bytes; None where none did."""
    found = run.summary["bytes_epoch_by_purpose"].get("ids")
    return None if found is None else (found["layer_0"] + found["hidden"]) / 4


def _mend(path: Path) -> str:
    """What to do about a damaged file."""
    return (
        f"{path} cannot be read: remove it, or make it again with halobench figures {path.parent.name}"
        f" --keep {path.parent.parent}"
    )


def _read(path: Path) -> dict[str, dict]:
    """The claims of a kept file by their fingerprints."""
    try:
        with open(path, newline="", encoding="utf-8") as file:  # pandas takes 20 ms for each
            read = csv.DictReader(file, strict=True)
            if not set(COLUMNS) <= set(read.fieldnames or ()):
                raise ValueError("columns are missing")
            rows: list[dict[str, Any]] = list(read)
        for row in rows:
            if None in row:
                raise ValueError("a row has more cells than there are columns")
            row.update({name: float(row[name] or "nan") for name in ("mean", "half", "seeds")})
    except (OSError, ValueError, TypeError, csv.Error):
        raise InputError(_mend(path)) from None
    return {row["asked"]: row for row in rows}
