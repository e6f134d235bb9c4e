"""What a cheat or a careless hand would change of a bundle of nine runs: vanilla, the control and SANCUS."""

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
    found = summarise(bundles.Submitted(run).trace)
    files.write_json_atomic(
        run / "summary.json", {**told, **{k: found[k] for k in found.keys() - bundles.OF_SPANS}}
    )
    sealed(folder, run)


def a_score_in_the_summary(folder, seed=1):
    run = run_of(folder, "sancus", seed)
    told = files.read_json(run / "summary.json")
    told["best"]["test"] += 0.03
    files.write_json_atomic(run / "summary.json", told)
    return run


def a_score_in_the_summary_and_digests(folder):
    sealed(folder, a_score_in_the_summary(folder, seed=2))


def a_score_everywhere(folder):
    def raise_it(frame):
        frame["test_acc"] += 0.05

    for seed in (1, 2, 3):
        changed(folder, run_of(folder, "sancus", seed), "epochs", raise_it)


def fewer_bytes_everywhere(folder):
    run = run_of(folder, "sancus", 1)
    path = run / "comm.parquet"
    frame = pd.read_parquet(path)
    frame["bytes"] //= 2
    frame.to_parquet(path, index=False)
    comm = frame.groupby(["epoch", "worker"])["bytes"].sum()

    def agree(frame):
        index = pd.MultiIndex.from_frame(frame[["epoch", "worker"]])
        frame["bytes_sent"] = comm.reindex(index, fill_value=0).to_numpy()

    changed(folder, run, "epochs", agree)


def a_larger_graph(folder):
    run = run_of(folder, "vanilla", 2)
    config = (run / "config.yaml").read_text().replace("scale: 0.01", "scale: 0.02")
    files.write_yaml_atomic(run / "config.yaml", config[: config.index("# xxh3")])
    sealed(folder, run)


def a_path_that_is_no_text(folder):
    run = run_of(folder, "vanilla", 2)
    config = yaml.safe_load(files.read_yaml_text(run / "config.yaml"))
    config["dataset"]["path"] = ["g.npz"]
    files.write_yaml_atomic(run / "config.yaml", yaml.safe_dump(config))
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
    def change(told):
        told["graph"]["generator"] = "another"

    edited(folder, "vanilla", (1, 2, 3), "shards.json", change)


def another_partition(folder):
    def change(told):
        told["stats"]["edges"] -= 1

    edited(folder, "zero_halo", [3], "shards.json", change)


def other_code(folder):
    def change(told):
        told["attempts"][0]["code"] = "0123456789ab"

    edited(folder, "sancus", [3], "resolved.json", change)


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
            shutil.copyfile(run_of(folder, "zero_halo", 2) / name, run_of(folder, "sancus", 2) / name)
    sealed(folder, run_of(folder, "sancus", 2))
