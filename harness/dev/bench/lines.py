"""One line of the bench: our value beside a peer's, their ratio, and the target it is held to."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from harness.base import tables
from harness.dev.bench.load import Load
from harness.results.environment import environment
from harness.results.files import finite

NOT_JUDGED = "busy: not judged"
SCHEMA = 1


@dataclass
class BenchLine:
    """One line of the bench. `ratio` is ours / peer; None where there is no peer, or the peer's value is zero
    and ours is not. `target` is the largest good ratio (of `ours` itself where there is no ratio); None where
    nothing is promised.

    unit           of both values
    note           what a reader needs to judge the line
    samples        every measurement that `ours` summarises, in the order taken; empty: `ours` is the only one
    peer_samples   every measurement that `peer` summarises
    part           one of `harness.dev.bench.parts.PARTS`, or "against"; set with `busy`, once all is measured
    busy           whether the machine was too busy to judge the line
    word, failed   beside another revision: how the line changed ("faster", "slower", "no difference", "too
                   few samples", "equal" or "differ"), and whether that fails the comparison
    """

    name: str
    ours: float
    unit: str
    peer: float | None = None
    target: float | None = None
    note: str = ""
    samples: Sequence[float] = ()
    peer_samples: Sequence[float] = ()
    part: str = ""
    busy: bool = False
    word: str = ""
    failed: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        unit: str,
        samples: Sequence[float],
        peer_samples: Sequence[float] = (),
        target: float | None = None,
        note: str = "",
    ) -> BenchLine:
        """The medians of what was measured on either side."""
        peer = statistics.median(peer_samples) if peer_samples else None
        ours = statistics.median(samples)
        return cls(name, ours, unit, peer, target, note, samples, tuple(peer_samples))

    @classmethod
    def absent(cls, name: str, unit: str, why: str = "dgl cannot be loaded here") -> BenchLine:
        """A line for what cannot be measured here. It has no target: a peer that is missing is no target
        missed."""
        return cls(name, math.nan, unit, note=f"{why}: not measured")

    @property
    def ratio(self) -> float | None:
        if not self.peer:
            return 1.0 if self.peer == self.ours else None
        return self.ours / self.peer

    @property
    def met(self) -> bool | None:
        """Whether the ratio, or the value itself where there is no ratio, is within the target; None where
        there is no target, or the machine was busy."""
        if self.target is None or self.busy:
            return None
        return (self.ours if self.ratio is None else self.ratio) <= self.target

    @property
    def verdict(self) -> str:
        """What a reader is told of the line; "" where it is held to nothing."""
        if self.word:
            return self.word.upper() if self.failed else self.word
        if self.target is None:
            return ""
        return NOT_JUDGED if self.busy else "met" if self.met else "MISSED"

    def row(self) -> dict:
        """The line as JSON has it: `word` and `failed` only where it is compared with another revision."""
        left_out = () if self.word else ("word", "failed")
        return {
            "part": self.part,
            **{name: value for name, value in vars(self).items() if name not in left_out},
            "ratio": self.ratio,
            "met": self.met,
            "samples": list(self.samples or [self.ours]),
            "peer_samples": list(self.peer_samples or ([] if self.peer is None else [self.peer])),
        }


def table(lines: list[BenchLine]) -> Table:
    """What was measured, as a table to print: each value with the range of its samples."""
    headings = ("part", "what", "ours", "peer", "unit", "ratio", "target", "", "note")
    shown = tables.shown(headings, words=("part", "what", "unit", "", "note"))
    part = None
    for line in lines:
        if part is not None and line.part != part:
            shown.add_section()
        part = line.part
        target = "" if line.target is None else f"<= {line.target:g}"
        shown.add_row(
            part,
            line.name,
            _short(line.ours) + _range(line.samples),
            _short(line.peer) + _range(line.peer_samples),
            line.unit,
            _short(line.ratio, ".3f" if line.word else ".3g"),
            target,
            line.verdict,
            line.note,
        )
    return shown


def _short(value: float | None, form: str = ".3g") -> str:
    return "" if value is None else format(value, form if abs(value) < 1000 else ".0f")


def _range(samples: Sequence[float]) -> str:
    alike = not samples or min(samples) == max(samples)
    return "" if alike else f" ({_short(min(samples))}-{_short(max(samples))})"


def interleaved(
    runs: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2
) -> dict[str, list[float]]:
    """Seconds of every call but the warm-up, A B C A B C ...: other load falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(warm_up + rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def write(lines: Sequence[BenchLine], path: Path, loads: Mapping[str, Load], **more: Any) -> None:
    """JSON: `environment` as in a run folder (with the revision of this checkout), `loads` (what else the
    machine did, by part), `more` and `lines`."""
    content = {
        "bench": SCHEMA,
        "environment": environment(),
        "loads": {part: load.row() for part, load in loads.items()},
        **more,
        "lines": [line.row() for line in lines],
    }
    path.write_text(json.dumps(finite(content), indent=1))
