"""What a cheat or a careless hand would change of a bundle of nine runs: vanilla, the control and SANCUS."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from harness.results import files
from harness.results.reader import checksums
from harness.results.summary import summarise
from harness.submissions import bundle as bundles


def run_of(folder: Path, system: str, seed: int) -> Path:
    (found,) = folder.glob(f"runs/*/{system}-2w-seed{seed}-*")
    return found


def sealed(folder: Path, run: Path) -> None:
    """Make all digests of a run that was changed agree again, as a cheat would."""
    told = files.read_json(run / "summary.json")
    told["files"] = {**told["files"], **checksums(run)}
    files.write_json_atomic(run / "summary.json", told)
    head = yaml.safe_load((folder / bundles.HEAD).read_text())
    head["runs"][str(run.relative_to(folder / "runs"))] = bundles.digest(run / "summary.json")
    (folder / bundles.HEAD).write_text(yaml.safe_dump(head))


def changed(folder: Path, run: Path, table: str, change) -> None:
    """Change a table of a run, and its summary and digests with it."""
    path = run / f"{table}.parquet"
    frame = pd.read_parquet(path)
    change(frame)
    schema = pq.read_schema(path)
    pq.write_table(pa.Table.from_pandas(frame, schema, preserve_index=False), path)
    told = files.read_json(run / "summary.json")
    (run / "summary.json").unlink()
    found = summarise(bundles.Submitted(run))
    files.write_json_atomic(
        run / "summary.json", {**told, **{k: found[k] for k in found.keys() - bundles.OF_SPANS}}
    )
    sealed(folder, run)


def a_score_in_the_summary(folder):
    run = run_of(folder, "sancus", 1)
    told = files.read_json(run / "summary.json")
    told["best"]["test"] += 0.03
    files.write_json_atomic(run / "summary.json", told)


def a_score_in_the_summary_and_digests(folder):
    a_score_in_the_summary(folder)
    sealed(folder, run_of(folder, "sancus", 1))


def a_score_everywhere(folder):
    def raise_it(frame):
        frame["test_acc"] += 0.05

    for seed in (1, 2, 3):
        changed(folder, run_of(folder, "sancus", seed), "epochs", raise_it)


def fewer_bytes_everywhere(folder):
    run = run_of(folder, "sancus", 1)

    def halve(frame):
        column = "bytes" if "bytes" in frame else "bytes_sent"
        frame[column] //= 2

    for table in ("comm", "epochs"):
        path = run / f"{table}.parquet"
        frame = pd.read_parquet(path)
        halve(frame)
        frame.to_parquet(path, index=False)
    # A sum of halves is not the half of a sum.
    comm = pd.read_parquet(run / "comm.parquet").groupby(["epoch", "worker"])["bytes"].sum()

    def agree(frame):
        index = pd.MultiIndex.from_frame(frame[["epoch", "worker"]])
        frame["bytes_sent"] = comm.reindex(index, fill_value=0).to_numpy()

    changed(folder, run, "epochs", agree)


def a_larger_graph(folder):
    run = run_of(folder, "vanilla", 2)
    config = (run / "config.yaml").read_text().replace("scale: 0.01", "scale: 0.02")
    files.write_yaml_atomic(run / "config.yaml", config[: config.index("# xxh3")])
    sealed(folder, run)


def edited(folder, system, seeds, file, change):
    """Change what a file of JSON of some runs says, and seal them."""
    for seed in seeds:
        run = run_of(folder, system, seed)
        told = files.read_json(run / file)
        change(told)
        files.write_json_atomic(run / file, told)
        sealed(folder, run)


def another_generator(folder):
    edited(
        folder, "vanilla", (1, 2, 3), "shards.json", lambda told: told["graph"].update(generator="another")
    )


def another_partition(folder):
    edited(
        folder,
        "vanilla",
        [2],
        "shards.json",
        lambda told: told["stats"].update(edges=told["stats"]["edges"] - 1),
    )


def other_code(folder):
    edited(
        folder, "sancus", [3], "resolved.json", lambda told: told["attempts"][0].update(code="0123456789ab")
    )


def another_role(folder):
    """The control as exact training, beside which all others look good."""
    for system, role in (("zero_halo", "reference"), ("sancus", "control")):
        edited(folder, system, (1, 2, 3), "resolved.json", lambda told, role=role: told.update(role=role))


def without(folder, system, seeds):
    for seed in seeds:
        shutil.rmtree(run_of(folder, system, seed))
    head = yaml.safe_load((folder / bundles.HEAD).read_text())
    head["runs"] = {run: told for run, told in head["runs"].items() if (folder / "runs" / run).is_dir()}
    (folder / bundles.HEAD).write_text(yaml.safe_dump(head))


def another_systems_run(folder):
    """The control's tables under the name of SANCUS."""
    for name in bundles.FILES:
        if name not in ("config.yaml", "resolved.json"):
            shutil.copyfile(run_of(folder, "zero_halo", 1) / name, run_of(folder, "sancus", 1) / name)
    sealed(folder, run_of(folder, "sancus", 1))
