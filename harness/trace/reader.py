"""Reading a run folder with pandas, whether the run has finished, is going on, or died."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from harness.check import InputError
from harness.trace.schema import SCHEMA_VERSION, TABLES


class Trace:
    """One run folder: `.epochs .comm .spans .metrics` are DataFrames, `.config .environment .summary` plain objects."""

    def __init__(self, run_dir: Path | str):
        self.run_dir = Path(run_dir)
        if not (self.run_dir / "config.yaml").is_file():
            raise InputError(f"{run_dir} is not a run folder: it holds no config.yaml; give one that a run has written")

    @property
    def finished(self) -> bool:
        return (self.run_dir / "summary.json").is_file()

    @cached_property
    def config(self) -> dict[str, Any]:
        return yaml.safe_load((self.run_dir / "config.yaml").read_text())

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self._json("environment.json")

    @cached_property
    def shards(self) -> dict[str, Any]:
        """Statistics of the partition the run used."""
        return self._json("shards.json")["stats"]

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """None until the run has finished."""
        return self._json("summary.json") if self.finished else None

    @cached_property
    def epochs(self) -> pd.DataFrame:
        return self._table("epochs")

    @cached_property
    def comm(self) -> pd.DataFrame:
        return self._table("comm")

    @cached_property
    def spans(self) -> pd.DataFrame:
        return self._table("spans")

    @cached_property
    def metrics(self) -> pd.DataFrame:
        return self._table("metrics")

    def _json(self, name: str) -> Any:
        try:
            return json.loads((self.run_dir / name).read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"{self.run_dir / name} cannot be read ({error}); run it again with fresh=true") from None

    def _table(self, name: str) -> pd.DataFrame:
        path = self.run_dir / f"{name}.parquet"
        if not path.is_file():
            return read_streams(self.run_dir, name).to_pandas()
        try:
            table = pq.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}); run it again with fresh=true") from None
        version = int((table.schema.metadata or {}).get(b"halobench_schema", SCHEMA_VERSION))
        if version > SCHEMA_VERSION:
            raise InputError(f"{path} has trace schema {version}, newer than this program's {SCHEMA_VERSION}; update halobench")
        return table.to_pandas()


def read_streams(run_dir: Path, table: str) -> pa.Table:
    """What the workers of all attempts have streamed so far, in order of epoch and worker.

    A later attempt goes on from a checkpoint: rows that an earlier one wrote from that epoch on were computed again and
    are dropped. A stream cut off in the middle of an epoch is read up to the epoch before.
    """
    attempts: dict[int, list[pa.Table]] = {}
    for path in sorted((Path(run_dir) / "stream").glob(f"{table}-worker*-attempt*.arrow")):
        attempt = int(re.search(r"attempt(\d+)\.arrow$", path.name)[1])
        attempts.setdefault(attempt, []).append(_read_stream(path, TABLES[table]))
    parts: list[pa.Table] = []
    for number in sorted(attempts):
        part = pa.concat_tables(attempts[number])
        begins = _first_epoch(run_dir, number)
        if begins is not None:
            parts = [p.filter(pa.compute.less(p["epoch"], begins)) for p in parts]
        parts.append(part)
    if not parts:
        return TABLES[table].empty_table()
    return pa.concat_tables(parts).sort_by([("epoch", "ascending"), ("worker", "ascending")])


def _first_epoch(run_dir: Path, attempt: int) -> int | None:
    """The epoch an attempt began with, from any worker's epochs stream; None where it finished none."""
    first = [
        t["epoch"][0].as_py()
        for path in (Path(run_dir) / "stream").glob(f"epochs-worker*-attempt{attempt}.arrow")
        if (t := _read_stream(path, TABLES["epochs"])).num_rows
    ]
    return min(first) if first else None


def _read_stream(path: Path, schema: pa.Schema) -> pa.Table:
    batches = []
    try:
        with pa.ipc.open_stream(path) as stream:
            for batch in stream:
                batches.append(batch)
    except (pa.ArrowInvalid, OSError):
        pass  # the writer died in the middle of a batch: what came before it is whole
    return pa.Table.from_batches(batches, schema)


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders at or below each path; InputError for a path that holds none."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        below = [path] if (path / "config.yaml").is_file() else sorted(p.parent for p in path.rglob("config.yaml"))
        runs = [p for p in below if not re.search(r"\.old\d+$", p.name) or p == path]
        if not runs:
            raise InputError(f"{path} holds no run; give a folder that a run has written, or one above such folders")
        found.update(dict.fromkeys(runs))
    return list(found)
