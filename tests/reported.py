"""What the tests of the report share: tables as dictionaries, sections, and runs with given scores."""

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.results.report import groups, table
from harness.results.report.__main__ import main
from tests import traces


@contextlib.contextmanager
def read_once() -> Iterator[None]:
    """Within it a run is read and summed up the first time that a report asks for it: for tests that ask for
    the same folders again and again, and change none of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups, "Run", functools.cache(groups.Run))
        yield


def rows(text: str) -> list[dict[str, str]]:
    """A markdown table as dictionaries."""
    lines = [
        [cell.strip() for cell in re.split(r" \| ", line.strip("|"))]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    return [dict(zip(lines[0], line)) for line in lines[1:]]


def run_markdown(capsys, *paths) -> str:
    assert main(["table", "--format", "markdown", "--all", *map(str, paths)]) == 0
    return capsys.readouterr().out


def rows_of(capsys, *paths) -> list[dict[str, str]]:
    return rows(run_markdown(capsys, *paths))


def rendered(what, width: int = 140) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(what)
    return console.export_text()


def told_of(run: Path) -> str:
    """What makes up the table of a run."""
    (group,), _ = groups.load([run])
    return repr((group.first.summary, group.first.keys, group.first.code, group.first.machine))


def section_of(*folders: Path, x: str | None = None) -> table.Section:
    """The one section that the runs of these folders make."""
    (section,) = table.sections(groups.load(folders, x)[0])
    return section


def scored_run(
    folder: Path,
    scores: list[dict[str, float] | None],
    composed: dict[str, Any] | None = None,
    losses: list[float] | None = None,
    *,
    epochs: dict[str, Any] | None = None,
    **more: Any,
) -> Path:
    """A finished run of one worker with these scores of its epochs; `epochs` as of `traces.epoch`."""
    composed = composed or traces.config(gpus=1, epochs=len(scores))

    def make(first: Path) -> None:
        traces.prepare(first, composed, **more)
        made = [traces.epoch(number, **(epochs or {})) for number in range(len(scores))]
        traces.close(traces.write(first, made, loss=losses or 1.0, scores=scores))

    return traces.once(folder, composed, (scores, losses, epochs, more), make)


def run(folder, system, seed, score, *, size=1000, seconds=0.1, role="", ran_on=None, **changes):
    """A finished run of two epochs with this test accuracy, bytes and seconds per epoch."""
    composed = traces.config(gpus=1, epochs=2, seed=seed, system___target_=f"a.{system}.S", **changes)
    epochs = {
        "segments": (("compute", "forward", seconds),),
        "flights": (),
        "sent": {(0, "forward", "halo", 1): (4, size)},
    }
    path = folder / f"{system}{seed}{changes}"
    scores = [traces.scored(0.5, 0.5, score)] * 2
    scored_run(path, scores, composed, epochs=epochs, role=role, **(ran_on or {}))


def runs(folder, system, scores, **how):
    """One per seed; bytes and seconds may be lists with one value per seed."""
    for seed, score in enumerate(scores, 1):
        own = {key: value[seed - 1] if isinstance(value, list) else value for key, value in how.items()}
        run(folder, system, seed, score, **own)
