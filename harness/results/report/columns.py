"""The measured columns of a table: heading, key in a CSV, how each follows from a summary (docs/trace.md)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from harness.results.report.groups import Group
from harness.results.summary import PARTS

Summary = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One measured column; `value` gives it from a run's summary, None where it is not known."""

    heading: str
    key: str
    value: Callable[[Summary], float | None]
    digits: str
    scored: bool = False  # a score, which a run that diverged does not have
    whole: bool = False  # a sum over the whole run, which grows with its epochs
    rate: bool = False  # of which more is better
    ranked: bool = True  # whether more or less of it is better at all

    @property
    def rising(self) -> bool:
        """Whether a higher value is the better one."""
        return self.scored or self.rate


def _score(at: str, name: str) -> Callable[[Summary], float | None]:
    """A score in percent at the best validation or at the last evaluation; none of a run that diverged."""

    def value(s: Summary) -> float | None:
        known = s["diverged"] is None and s[at] and s[at].get(name) is not None
        return 100 * s[at][name] if known else None

    return value


def _majority(s: Summary) -> float | None:
    share = (s["majority"] or {}).get("test")
    return None if share is None else 100 * share


def _communication_cpu(s: Summary) -> float:
    return float(s["cpu_slowest"]["wait_s"] + s["cpu_slowest"]["other_threads_s"])


def _rest_cpu(s: Summary) -> float:
    """CPU seconds of segments of kind rest, and of the threads that sample beside the training."""
    return float(s["cpu_slowest"]["rest_s"] + s["cpu_slowest"]["sampler_s"])


def _throughput(seconds: Callable[[Summary], float]) -> Callable[[Summary], float | None]:
    """Training vertices whose loss is taken, per second of training."""

    def value(s: Summary) -> float | None:
        return s["seeds_epoch"] / seconds(s) if s["seeds_epoch"] is not None and seconds(s) else None

    return value


def _megabytes(part: str) -> Callable[[Summary], float]:
    return lambda s: s["bytes_epoch"][part] / 1e6


ACCURACY = Column("test acc %", "test_acc_percent", _score("best", "test"), ".2f", True)
LAST = Column("last acc %", "last_acc_percent", _score("final", "test"), ".2f", True)
AUC = Column("test AUC %", "test_auc_percent", _score("best", "test_auc"), ".2f", True)
LAST_AUC = Column("last AUC %", "last_auc_percent", _score("final", "test_auc"), ".2f", True)
BALANCED = Column("balanced acc %", "balanced_acc_percent", _score("best", "test_balanced"), ".2f", True)
MAJORITY = Column("majority %", "majority_percent", _majority, ".2f", ranked=False)
# By the score that leads: LEADING has its columns, at the best validation and in the last evaluation, BESIDE
# those of the other scores.
LEADING = {"acc": (ACCURACY, LAST), "auc": (AUC, LAST_AUC)}
BESIDE = {"acc": (AUC, BALANCED, MAJORITY), "auc": (ACCURACY, BALANCED, MAJORITY)}
TIMES = {
    "wall": (
        Column("epoch s", "epoch_s", lambda s: s["epoch_s"], ".4f"),
        Column("compute s", "compute_s", lambda s: s["compute_s"], ".4f"),
        Column("exposed comm s", "exposed_s", lambda s: s["exposed_s"], ".4f"),
        Column("rest s", "rest_s", lambda s: s["rest_s"], ".4f"),
    ),
    "cpu": (
        Column("epoch CPU s", "epoch_cpu_s", lambda s: s["cpu_slowest"]["epoch_s"], ".4f"),
        Column("compute CPU s", "compute_cpu_s", lambda s: s["cpu_slowest"]["compute_s"], ".4f"),
        Column("comm CPU s", "comm_cpu_s", _communication_cpu, ".4f"),
        Column("rest CPU s", "rest_cpu_s", _rest_cpu, ".4f"),
    ),
}
# Shown where a row trains on mini-batches, of which an epoch has several.
THROUGHPUT = {
    "wall": Column("train vertices / s", "seeds_per_s",
                   _throughput(lambda s: s["epoch_s"]), ".0f", rate=True),
    "cpu": Column("train vertices / CPU s", "seeds_per_cpu_s",
                  _throughput(lambda s: s["cpu_slowest"]["epoch_s"]), ".0f", rate=True),
}  # fmt: skip
EXPOSED = Column("exposed wall s", "exposed_s", lambda s: s["exposed_s"], ".4f")
CPU = Column("CPU s all workers", "cpu_s_all_workers", lambda s: s["cpu_s"], ".4f")
WORK = Column("GFLOP per epoch", "gflop_epoch", lambda s: s["flops_epoch"] / 1e9, ".3f")
BYTES = (
    *(Column(f"MB {part.replace('_', ' ')}", f"mb_epoch_{part}", _megabytes(part), ".3f") for part in PARTS),
    Column("MB per epoch", "mb_epoch", lambda s: sum(s["bytes_epoch"].values()) / 1e6, ".3f"),
    Column("MB per run", "mb_run", lambda s: s["bytes_total"] / 1e6, ".1f", whole=True),
)
# Every column by its key, in a CSV's order.
ALL = {
    column.key: column
    for column in (ACCURACY, LAST, AUC, LAST_AUC, BALANCED, MAJORITY, *TIMES["wall"], *TIMES["cpu"], EXPOSED,
                   CPU, WORK, *THROUGHPUT.values(), *BYTES)
}  # fmt: skip


def more(names: Iterable[str]) -> tuple[Column, ...]:
    """Columns of the scores of one's own (`score=NAME`), at the best validation."""
    return tuple(
        Column(f"{name.replace('_', ' ')} %", f"{name}_percent", _score("best", f"test_{name}"), ".2f", True)
        for name in names
    )


def _metric(name: str) -> Callable[[Summary], float | None]:
    return lambda s: s["metrics"].get(name)


def metrics(names: Iterable[str]) -> tuple[Column, ...]:
    """The columns of metrics (`recorder.metric`) that a report was asked for."""
    return tuple(Column(name, f"metric_{name}", _metric(name), ".4g", ranked=False) for name in names)


def named(column: Column, multilabel: bool) -> Column:
    """The column with the heading that fits the labels: accuracy of several labels per vertex is micro-F1."""
    several = multilabel and column in (ACCURACY, LAST)
    return replace(column, heading=column.heading.replace(" acc %", " F1 %")) if several else column


def leading(groups: list[Group]) -> str:
    """The score that leads: "auc" where it does so in every run, else "acc"."""
    return "auc" if all(run.summary["score"] == "auc" for group in groups for run in group.runs) else "acc"


def score_name(groups: list[Group]) -> str:
    """What their leading score is called; of several labels per vertex accuracy is micro-F1."""
    acc = "F1" if groups[0].first.summary["multilabel"] else "accuracy"
    return {"acc": acc, "auc": "AUC"}[leading(groups)]


def times(clock: str, mini_batches: bool = False) -> tuple[Column, ...]:
    """The columns of time under a clock ("wall" or "cpu").

    mini_batches   whether to add training vertices per second
    """
    # No CPU column shows the wall seconds in which a worker waited, so they get a column of their own.
    exposed = [EXPOSED] if clock == "cpu" else []
    return (*TIMES[clock], *exposed, CPU, WORK, *([THROUGHPUT[clock]] if mini_batches else []))
