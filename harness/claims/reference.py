"""What an experiment's runs said, kept without the runs: a folder per experiment, as in results/reference/.

    claims.csv        a row per claim: ours in full, the verdict, and a fingerprint of what was asked
    runs.csv          a row per run: size, row of the experiment, graph, seed, and every measured column
    environment.json  of the first run; runs.csv names another machine or other code where there is one
    *.png             the pictures

None of these files is a run's, so that no reader takes a kept folder for one.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.check import InputError, writing
from harness.claims.evaluate import NOT_RUN, Folders, Result
from harness.claims.experiment import SIZES, Claim, Experiment
from harness.claims.verdict import Verdict
from harness.report.columns import ALL
from harness.report.groups import Estimate, Run
from harness.trace import files

FOLDER = Path("results/reference")
MEND = "give another --keep"
COLUMNS = ("entry", "part", "mean", "half", "seeds", "verdict", "why", "size", "asked")


def asked(experiment: Experiment, claim: Claim, size: str) -> str:
    """A fingerprint of a claim and of the runs that decide it: another one, where its file has changed."""
    sweeps = [experiment.sweeps(row, size) for row in claim.needed]
    return hashlib.sha256(repr((claim, sweeps)).encode()).hexdigest()[:12]


def keep(
    folder: Path, experiment: Experiment, found: Sequence[Result], folders: Folders, pictures: Iterable[Path]
) -> None:
    """Write what `found` of an experiment at one size says to a folder of the experiment's name.

    What the folder held of this experiment is replaced once all is written. InputError where it cannot be
    written, or holds a larger size.
    """
    place = folder / experiment.name
    (size,) = experiment.sizes
    check(place, size)
    runs = {
        (row, graph): [Run(path) for path in folders(sweep)]
        for row in experiment.rows
        for graph, sweep in zip(experiment.sizes[size].graphs, experiment.sweeps(row, size))
    }
    with writing(place, MEND):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{experiment.name}-") as made:
            new = Path(made) / experiment.name
            new.mkdir()
            _table(runs, size).to_csv(new / "runs.csv", index=False)
            _claims(experiment, size, found).to_csv(new / "claims.csv", index=False)
            first = next(iter(runs.values()))[0]
            files.write_json_atomic(new / "environment.json", first.trace.environment)
            for picture in pictures:
                shutil.copy(picture, new / picture.name)
            if place.exists():
                place.rename(Path(made) / "before")
            new.rename(place)


def check(place: Path, size: str) -> None:
    """InputError where what is kept at `place` is of a larger size than `size`."""
    runs = place / "runs.csv"
    before = str(pd.read_csv(runs, usecols=["size"])["size"].iloc[0]) if runs.exists() else size
    if before in SIZES and SIZES.index(before) > SIZES.index(size):
        raise InputError(f"keep={place.parent} has {place.name} of size {before}, larger than {size}: {MEND}")


def with_kept(found: Sequence[Result], folder: Path, experiments: Mapping[str, Experiment]) -> list[Result]:
    """Results whose runs are not there taken from a kept folder, their size marked "reference".

    What was kept under another claim, or of other runs, is not taken. InputError that names a damaged file.
    """
    kept = {path.parent.name: _read(path) for path in sorted(folder.glob("*/claims.csv"))}
    fingerprints = {
        (plan.name, claim.entry, claim.says, size): asked(plan, claim, size)
        for plan in experiments.values()
        if plan.name in kept
        for claim in plan.claims
        for size in plan.sizes
    }

    def taken(result: Result) -> Result:
        row = kept.get(result.experiment, {}).get((result.entry, result.says))
        if result.verdict.word != NOT_RUN or row is None:
            return result
        if fingerprints.get((result.experiment, result.entry, result.says, row["size"])) != row["asked"]:
            return result
        half = None if np.isnan(row["half"]) else row["half"]
        ours = None if np.isnan(row["mean"]) else Estimate(row["mean"], half, int(row["seeds"]))
        verdict = Verdict(row["verdict"], row["why"])
        return replace(result, verdict=verdict, ours=ours, size=f"{row['size']}, reference")

    return [taken(result) for result in found]


def _claims(experiment: Experiment, size: str, found: Sequence[Result]) -> pd.DataFrame:
    claims = {(claim.entry, claim.says): claim for claim in experiment.claims}
    rows = []
    for each in found:
        if each.size == size:
            ours = (None, None, None) if each.ours is None else (each.ours.mean, each.ours.half, each.ours.n)
            print_ = asked(experiment, claims[each.entry, each.says], size)
            rows.append((each.entry, each.says, *ours, each.verdict.word, each.verdict.why, size, print_))
    return pd.DataFrame(rows, columns=COLUMNS)


def _table(runs: Mapping[tuple[str, str], Sequence[Run]], size: str) -> pd.DataFrame:
    """A row per run, all that was measured in full; None where a run has no such value."""
    return pd.DataFrame(
        [
            {
                "size": size,
                "row": row,
                "graph": graph,
                "seed": run.seed,
                "code": run.code,
                "machine": run.machine,
                **{key: column.value(run.summary) for key, column in ALL.items()},
            }
            for (row, graph), own in runs.items()
            for run in own
        ]
    )


def _read(path: Path) -> dict[tuple[str, str], dict]:
    """The claims of a kept file by entry and part."""
    try:
        table = pd.read_csv(path, dtype={"why": str}, keep_default_na=True)
        rows = table.fillna({"why": ""})[list(COLUMNS)].to_dict("records")
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} cannot be read ({str(error).splitlines()[0]}): make it again with halobench figures"
            f" {path.parent.name} --size small --keep {path.parent.parent}"
        ) from None
    return {(row["entry"], row["part"]): row for row in rows}
