"""Extends a run to more epochs. The longer run gets a folder that looks as if that run had been stopped where
the shorter one ended, and is then launched like any stopped run."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from omegaconf import OmegaConf

from harness.base.errors import InputError
from harness.base.scratch import scratch
from harness.core.checkpoint import number_in
from harness.core.mixins import AsynchronousSystem
from harness.core.scores import RANKED
from harness.results import files, resolved
from harness.results.batch import write_sealed
from harness.results.reader import Tables, Trace
from harness.results.schema import SCORES, TABLES
from harness.run import config as configs
from harness.run import prepare
from harness.run.config import Run, graph_folder
from harness.run.settings import RunConfig


def longer(run_dir: Path, epochs: int, /, **changes: Any) -> Run:
    """The run in `run_dir`, asked for `epochs` epochs in all and ready to go on, bit for bit as if it had
    been asked for so many from the start. It gets a folder of its own; `run_dir` stays as it is.

    changes   keys that say where it is kept and how it is shown (`harness.results.identity.PLACE_KEYS`)

    Raises InputError where the run cannot go on: too few epochs, no checkpoint, a system that is asynchronous
    or whose work in an epoch depends on the number of epochs, or a run that diverged. Also where the config
    names a folder to write to that the user has not given (`_check_places`)."""
    run = configs.load(run_dir)
    results = _results_of(run, run_dir)
    place: dict[str, Any] = {"results": str(results or run_dir.parent), "run_dir": None, "fresh": False}
    if "results" not in changes and (run.settings.run_dir or not results):
        place["run_dir"] = str(run_dir.with_name(f"{run_dir.name}-{epochs}epochs"))
    made = configs.check({**run.composed, "launch": "local", **place, **changes, "epochs": epochs})
    if epochs <= run.settings.epochs:
        raise InputError(
            f"epochs={epochs} is not more than {run_dir} has ({run.settings.epochs}): give more, in all"
        )
    _check_places(run, run_dir, results, changes)
    if made.directory.exists():
        return made  # the longer run has finished, or was begun before
    trace, at = Trace(run_dir), run_dir / "checkpoints" / "latest"
    if isinstance(run.system, AsynchronousSystem):
        raise _cannot(run_dir, "its system is asynchronous, so no two runs have the same updates")
    if made.follows_epochs:
        raise _cannot(
            run_dir, "what its system does in an epoch follows the number of epochs of the whole run"
        )
    if trace.finished and trace.summary and trace.summary["diverged"] is not None:
        raise _cannot(run_dir, f"it diverged in epoch {trace.summary['diverged'] + 1}")
    if not at.exists():
        raise _cannot(
            run_dir,
            "it kept no checkpoint of its last epoch: the command that started it, with keep_checkpoint=true"
            " fresh=true, runs it again and keeps one",
        )
    if trace.shards.get("workers") != run.settings.workers:
        raise _cannot(
            run_dir,
            f"its config.yaml has workers={run.settings.workers}, its shards.json"
            f" {trace.shards.get('workers')}: put the config back, or run it anew with fresh=true",
        )
    with prepare.locked(run_dir):
        _lay_out(made, run_dir, number_in(at), trace.finished)
    return made


def _results_of(run: Run, run_dir: Path) -> Path | None:
    """The folder of results that a run stands in: the one above the folder named like its graph. None where
    the run is in a folder of another name, for instance one of downloads: the folders above then have nothing
    to do with the run."""
    return run_dir.parent.parent if run_dir.parent.name == graph_folder(run.dataset) else None


def _check_places(run: Run, run_dir: Path, results: Path | None, given: Mapping[str, Any]) -> None:
    """InputError where only the run's config names the folder of `cache` or `data_dir`. The config may be
    somebody else's, and the folder any place on this machine. Allowed are a folder that is `given`, the
    default, and the one with the default's name in the folder of results that the run is in."""
    for key in ("cache", "data_dir"):
        named = getattr(run.settings, key)
        usual = named == getattr(RunConfig, key)
        beside = results and (results / Path(getattr(RunConfig, key)).name).resolve()
        if key not in given and not usual and Path(named).resolve() != beside:
            raise InputError(
                f"{run_dir / 'config.yaml'} names {key}={named}: add {key}={named} to the command where that"
                " folder is yours, or give another"
            )


def _cannot(run_dir: Path, why: str) -> InputError:
    return InputError(f"{run_dir} cannot go on bit for bit: {why}")


def _lay_out(made: Run, run_dir: Path, first: int, finished: bool) -> None:
    """Make the longer run's folder with the first `first` epochs of `run_dir` and its checkpoint. It is
    filled beside and renamed into place, so it is there whole or not at all."""
    folder = made.directory
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch(parent=folder.parent, prefix=".extending.") as beside:
        part = beside / folder.name
        shutil.copytree(run_dir / "checkpoints", part / "checkpoints")
        for name in ("shards.json", "environment.json", "devices.json", resolved.FILE):
            if (run_dir / name).exists():
                shutil.copy(run_dir / name, part / name)
        files.write_yaml_atomic(part / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(made.composed)))
        every, last = made.evaluate.every, made.settings.epochs
        # The last epoch of a run is always evaluated. In the longer run it is an epoch like any other, so its
        # scores go where `evaluate.every` does not ask for them.
        unasked = first - 1 if finished and not (every and (first - 1) % every == 0) else last
        scores = [f"{split}_{name}" for split in RANKED for name in made.scores]
        _write_streams(run_dir, part / "stream", first, unasked, scores)
        os.replace(part, folder)


def _write_streams(run_dir: Path, folder: Path, first: int, unasked: int, scores: Sequence[str]) -> None:
    """The tables of `run_dir` up to epoch `first`, exclusive, as streams of one attempt; scores of the epoch
    `unasked` are left out, and those named `scores`, which are metrics, too."""
    folder.mkdir()
    tables = Tables(run_dir)
    for name, schema in TABLES.items():
        rows = tables.table(name)
        rows = rows.filter(pc.less(rows["epoch"], first))
        if name == "epochs":
            kept = pc.not_equal(rows["epoch"], unasked)
            for column in SCORES:
                at = rows.schema.get_field_index(column)
                values = pc.if_else(kept, rows[column], pa.scalar(None, rows[column].type))
                rows = rows.set_column(at, rows.schema.field(column), values)
        if name == "metrics":
            left_out = pc.and_(
                pc.equal(rows["epoch"], unasked), pc.is_in(rows["name"], pa.array(scores, pa.string()))
            )
            rows = rows.filter(pc.invert(left_out))
        for worker in pc.unique(rows["worker"]).to_pylist():
            path = folder / f"{name}-worker{worker}-attempt0.arrow"
            with pa.ipc.new_stream(path, schema) as stream:
                own = rows.filter(pc.equal(rows["worker"], worker)).cast(schema).combine_chunks()
                for batch in own.to_batches():
                    write_sealed(stream, batch)
