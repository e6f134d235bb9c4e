"""Reading a run folder with pandas, whether the run has finished, is going on, or died."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml

from harness.base import checksum, yaml_text
from harness.base.checksum import Damaged
from harness.base.errors import InputError, first_line
from harness.base.machine import check_machine, check_room
from harness.results import kinds, resolved
from harness.results.batch import sealed_batches
from harness.results.files import check_file, read_yaml_text
from harness.results.identity import canonical
from harness.results.schema import AGAIN, RUN, SCHEMA_VERSION, TABLES, VERSION_KEY, check_version

if TYPE_CHECKING:
    import pandas as pd  # arrow imports pandas when a frame is asked for; a worker asks for none

# Errors that a file may lead to whose objects lack keys, or hold values of another kind or out of range.
MISSHAPEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
# Arrow ends the process where it cannot allocate a Python object (a cell that is a list) while it makes a
# frame. So the reader first checks that ROOM bytes, plus GROWN times the bytes of arrow's table, are free. A
# frame of spans takes 4 times what arrow's table does.
ROOM, GROWN = 32 << 20, 6
# A table may take SPARED bytes of memory, or EXPANSION bytes per byte of its file where that is more. Tables
# of runs take up to 160 bytes per byte; zstd can pack millions of equal rows into each kilobyte.
SPARED, EXPANSION = 256 << 20, 200
STREAM = re.compile(
    r"(?P<table>[a-z]+)-(worker(?P<worker>\d+)|run)-attempt(?P<attempt>\d+)(-from(?P<first>\d+))?\.arrow"
)
BY = {
    "epochs": ("epoch", "worker"),
    "comm": ("epoch", "worker", "layer", "direction", "purpose", "peer"),
    "spans": ("epoch", "worker", "start_s"),
    "metrics": ("epoch", "worker", "layer", "name"),
}


class Trace:
    """One run folder: `.epochs .comm .spans .metrics` are DataFrames (docs/trace.md), `.config .environment
    .summary .shards` plain objects; each is read when first asked for.

    Of a run that has not finished, the tables hold every epoch that each worker has finished so far.
    Raises InputError where the folder is not a run folder, or where a file is damaged, missing or of another
    schema version."""

    def __init__(self, run_dir: Path | str):
        self.run_dir = Path(run_dir)
        if not (self.run_dir / "config.yaml").is_file():
            raise InputError(
                f"{run_dir} is not a run folder: it holds no config.yaml; give one that a run has written"
            )

    @property
    def finished(self) -> bool:
        return self.summary is not None

    @cached_property
    def config(self) -> dict[str, Any]:
        """The composed config, with the number of workers under `workers`."""
        path = self._whole("config.yaml")
        try:
            config = yaml_text.parsed(read_yaml_text(path))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            check_machine(error, path)
            raise InputError(f"{path} cannot be read ({first_line(error)}); {AGAIN}") from None
        kinds.check(path, config, AGAIN)
        return canonical(config)

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

    @cached_property
    def resolved(self) -> dict[str, Any] | None:
        """What the run really ran on (`harness.results.resolved`); None where no worker has begun."""
        self._whole(resolved.FILE)
        return resolved.read(self.run_dir)

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        return int((self.resolved or {}).get("steps", 1))

    @property
    def has_shards(self) -> bool:
        """Whether the folder has statistics of the partition, or had some when the run finished."""
        name = "shards.json"
        return (self.run_dir / name).is_file() or name in (self.summary or {}).get("files", {})

    @cached_property
    def shards(self) -> dict[str, Any]:
        """Statistics of the partition the run used."""
        stats: dict[str, Any] | None = self._json("shards.json").get("stats")
        if stats is None:
            raise InputError(f"{self.run_dir}/shards.json is damaged: it holds no statistics; {AGAIN}")
        return stats

    @cached_property
    def graph(self) -> dict[str, Any]:
        """The fingerprint that the run's graph had when the run began: its raw files, its generator, its keys
        (docs/trace.md). Empty where shards.json does not say."""
        return (self._json("shards.json").get("graph") or {}) if self.has_shards else {}

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """None until the run has finished. `files` holds the checksums of the other files."""
        if not (self.run_dir / "summary.json").is_file():
            return None
        return self._json("summary.json")

    @cached_property
    def epochs(self) -> pd.DataFrame:
        return self._frame("epochs")

    @cached_property
    def unknown_losses(self) -> list[int]:
        """Row numbers of `epochs` whose loss is null."""
        return np.flatnonzero(self._tables.table("epochs")["loss"].is_null().to_numpy()).tolist()

    @cached_property
    def comm(self) -> pd.DataFrame:
        return self._frame("comm")

    @cached_property
    def spans(self) -> pd.DataFrame:
        return self._frame("spans")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return self._frame("metrics")

    def forget(self, table: str) -> None:
        """Free the memory of a table that has been read; it is read again when next asked for."""
        self.__dict__.pop(table, None)

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self.run_dir)

    def _frame(self, table: str) -> pd.DataFrame:
        path = self._whole(f"{table}.parquet")
        if self.finished and not path.is_file():
            raise InputError(f"{path} is missing, though the run has finished; {AGAIN}")
        return frame_of(self._tables.table(table), path)

    def _whole(self, name: str) -> Path:
        """A file's path. InputError where the run has finished and the file has changed since."""
        path = self.run_dir / name
        expected = (self.summary or {}).get("files", {}).get(name)
        if expected is not None:
            try:
                check_file(path)
                found = checksum.of_file(path)
            except Damaged as error:
                raise InputError(f"{path} is damaged ({error}); {AGAIN}") from None
            except OSError as error:
                check_machine(error, path)
                raise InputError(f"{path} cannot be read ({error.strerror}); {AGAIN}") from None
            if found != expected:
                raise InputError(f"{path} is damaged: it is not what the run has written; {AGAIN}")
        return path

    def _json(self, name: str) -> dict[str, Any]:
        return kinds.read(self.run_dir / name if name == "summary.json" else self._whole(name), AGAIN)


def checksums(run_dir: Path) -> dict[str, str]:
    """The checksum of each file that a run which has finished keeps, but for its summary and checkpoints."""
    names = (
        *("config.yaml", "environment.json", "shards.json", "devices.json", resolved.FILE),
        *(f"{table}.parquet" for table in TABLES),
    )
    return {name: checksum.of_file(run_dir / name) for name in names if (run_dir / name).is_file()}


class Tables:
    """The tables of a run as Arrow: its parquet files, overlaid with the streams of its attempts.

    An attempt goes on from a checkpoint and computes the epochs after it again. So rows of a worker's epochs
    from the first of the attempt on are dropped where an earlier attempt wrote them. Rows of the epoch in
    which a worker died are dropped too.

    A run may be finalised while it is read: its streams are then gone, and their rows are in the parquet
    files. So whoever misses a stream lists them again."""

    def __init__(self, run_dir: Path):
        self.run_dir = Path(run_dir)
        self._list()

    def _list(self) -> None:
        """List the streams, and read which epochs each has."""
        self.attempts: dict[int, dict[int, dict[str, Path]]] = {}  # attempt -> worker -> table -> path
        self.first: dict[int, dict[int, int | None]] = {}  # attempt -> worker -> epoch in the file's name
        for named, path in streams(self.run_dir):
            attempt, worker = int(named["attempt"]), RUN if named["worker"] is None else int(named["worker"])
            self.attempts.setdefault(attempt, {}).setdefault(worker, {})[named["table"]] = path
            first = None if named["first"] is None else int(named["first"])
            self.first.setdefault(attempt, {})[worker] = first
        # attempt -> worker -> first and last finished epoch
        self.epochs: dict[int, dict[int, tuple[int, int]]] = {}
        for attempt, workers in self.attempts.items():
            try:
                read = {
                    w: _read_stream(paths["epochs"], TABLES["epochs"])["epoch"]
                    for w, paths in workers.items()
                    if "epochs" in paths
                }
            except FileNotFoundError:
                self._list()
                return
            self.epochs[attempt] = {
                w: (pc.min(e).as_py(), pc.max(e).as_py()) for w, e in read.items() if len(e)
            }

    def table(self, name: str) -> pa.Table:
        """One table, in order of epoch and worker; empty where nothing has been written yet."""
        while True:
            try:
                return self._overlaid(name)
            except FileNotFoundError:
                self._list()

    def _overlaid(self, name: str) -> pa.Table:
        path, schema = self.run_dir / f"{name}.parquet", TABLES[name]
        parts = [_read_parquet(path, schema)] if path.is_file() else []
        for attempt in sorted(self.attempts):
            finished = self.epochs[attempt]
            if not finished:
                continue
            earliest = min(first for first, _ in finished.values())
            for worker, begin in self.first[attempt].items():
                begin = earliest if begin is None else begin
                parts = [
                    part.filter(pc.or_(pc.not_equal(part["worker"], worker), pc.less(part["epoch"], begin)))
                    for part in parts
                ]
            for worker, (_, last) in sorted(finished.items()):
                stream = self.attempts[attempt][worker].get(name)
                if stream is not None:
                    rows = _read_stream(stream, schema)
                    parts.append(rows.filter(pc.less_equal(rows["epoch"], last)))
        if not parts:
            return schema.empty_table()
        return pa.concat_tables(parts).sort_by([(column, "ascending") for column in BY[name]])


def streams(run_dir: Path) -> Iterator[tuple[re.Match[str], Path]]:
    """The streams of a run that has not finished, each with what its name says (STREAM)."""
    for path in sorted((Path(run_dir) / "stream").glob("*.arrow")):
        named = STREAM.fullmatch(path.name)
        if named and named["table"] in TABLES and path.exists():
            yield named, path


def frame_of(table: pa.Table, path: Path) -> pd.DataFrame:
    """A table that was read from `path`, as a DataFrame. LimitReached where there is not enough memory."""
    check_room(ROOM + GROWN * table.nbytes, path)
    frame: pd.DataFrame = table.to_pandas(use_threads=False)
    return frame


def bytes_sent(run_dir: Path, worker: int, before: int) -> int:
    """The bytes that a worker has sent in its epochs before epoch `before`."""
    rows = Tables(run_dir).table("epochs")
    ours = pc.and_(pc.equal(rows["worker"], worker), pc.less(rows["epoch"], before))
    return int(pc.sum(rows.filter(ours)["bytes_sent"]).as_py() or 0)


def check_streams(run_dir: Path, attempt: int) -> None:
    """Raise InputError where a stream of an earlier attempt is damaged: without this check the damage would
    come out only when all other epochs have been computed. Streams of this attempt are not read, since other
    workers may be writing them."""
    for named, path in streams(run_dir):
        if int(named["attempt"]) < attempt:
            _read_stream(path, TABLES[named["table"]])


def _read_parquet(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        check_file(path)
        check_room(ROOM, path)
        with pq.ParquetFile(path, pre_buffer=False) as file:  # pre-buffering would start a thread
            check_version((file.schema_arrow.metadata or {}).get(VERSION_KEY, SCHEMA_VERSION), path)
            parts = file.iter_batches(use_threads=False)  # reading works where no thread can be started
            table = pa.Table.from_batches(_bounded(parts, path), file.schema_arrow)
        return _columns(table, schema, path)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        check_machine(error, path)
        raise InputError(f"{path} is damaged ({first_line(error)}); {AGAIN}") from None


def _read_stream(path: Path, schema: pa.Schema) -> pa.Table:
    """The whole batches of a stream. One cut off in the middle of a batch ends with the batch before.
    FileNotFoundError where it is gone."""
    batches: list[pa.RecordBatch] = []
    try:
        check_file(path)
        check_room(ROOM, path)
        with pa.ipc.open_stream(path) as stream:
            check_version((stream.schema.metadata or {}).get(VERSION_KEY, SCHEMA_VERSION), path)
            _columns(stream.schema.empty_table(), schema, path)
            batches.extend(_bounded(sealed_batches(stream), path))
    except (Damaged, UnicodeDecodeError) as error:  # UnicodeDecodeError: a column's name is damaged
        raise InputError(f"{path} is damaged ({error}); {AGAIN}") from None
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        check_machine(error, path)  # else the writer died, or is writing now
    return _columns(pa.Table.from_batches(batches), schema, path) if batches else schema.empty_table()


def _bounded(batches: Iterable[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """The batches of a file. Raises Damaged once they take more memory than those of a run could."""
    most, size = max(SPARED, EXPANSION * path.stat().st_size), 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            raise Damaged(f"its rows take more than {most >> 20} MiB, too much for a file of its size")
        yield batch


def _columns(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """The table with the columns of `schema`, in its order."""
    if table.schema.equals(schema):
        return table
    if absent := [name for name in schema.names if name not in table.schema.names]:
        raise InputError(
            f"{path} does not hold the columns of this table: it lacks a column, {absent[0]}; {AGAIN}"
        )
    if len(set(table.schema.names)) < len(table.schema.names):
        raise InputError(f"{path} does not hold the columns of this table: it has one twice; {AGAIN}")
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError):
        raise InputError(f"{path} does not hold the columns of this table; {AGAIN}") from None


BUNDLE = "submission.yaml"  # the file that marks a folder of runs made by `halobench submit`
SET_ASIDE = re.compile(r"\.old\d+$")  # what fresh=true calls a run folder that it sets aside
STARTED = "started"  # folder below `results` for runs that a command starts for itself (`halobench advise`)


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders (they hold a config.yaml) at or below each path or glob pattern, each once, in order.

    Folders set aside by fresh=true (`NAME.old1`), bundles (BUNDLE), and runs that a command started for
    itself (STARTED) count only where a path names them. InputError for a path that holds no run."""
    found: dict[Path, None] = {}
    for given in paths:
        if not str(given):  # as a path it would be the working directory
            raise InputError('"" names no run: give a folder that a run has written, or one above some')
        path = Path(given)
        matches = [path] if path.exists() else sorted(map(Path, glob.glob(str(given), recursive=True)))
        if matches != [path] and not SET_ASIDE.search(str(given)):
            matches = [match for match in matches if not SET_ASIDE.search(match.name)]
        runs = [run for match in matches for run in _runs_below(match)]
        if not runs:
            lacks = "matches nothing" if glob.has_magic(str(given)) else "does not exist"
            said = f"{given} {'holds no run' if matches else lacks}"
            said += ", and keys choose no runs" if "=" in str(given) else ""
            raise InputError(f"{said}; give a folder that a run has written, or one above such folders")
        found.update(dict.fromkeys(runs))
    return list(found)


def _runs_below(path: Path) -> list[Path]:
    if (path / "config.yaml").is_file():
        return [path]
    found = [each.parent for each in sorted(path.rglob("config.yaml")) if each.is_file()]
    return [
        each
        for each in found
        if STARTED not in each.relative_to(path).parts
        and not SET_ASIDE.search(each.name)
        and not any((above / BUNDLE).is_file() for above in each.parents if path in above.parents)
    ]
