"""The numbers of a run that experiments compare, named in their files."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.base.errors import InputError, choice, within
from harness.model.replay.settings import parse
from harness.model.replay.times import Epoch, Times, times_of
from harness.results.reader import Trace
from harness.results.report.columns import ALL
from harness.results.report.estimate import estimate
from harness.results.report.groups import Run


def _gaps(values: np.ndarray) -> float:
    """How irregular the epochs are in which a metric is not 0. Of each worker the standard deviation of the
    distances between two such epochs, over their mean; then the mean over workers. 0 where all distances are
    equal."""
    found = [np.diff(np.flatnonzero(column)) for column in values.T]
    known = [gaps.std() / gaps.mean() for gaps in found if len(gaps) > 1]
    return float(np.mean(known)) if known else float("nan")


def _falls(values: np.ndarray) -> float:
    """How far a value falls from one epoch to the next (0 where it rises); a mean over epochs and workers."""
    return float(np.nanmean(np.maximum(values[:-1] - values[1:], 0))) if len(values) > 1 else float("nan")


def _middle(values: np.ndarray) -> float:
    """How far the mean of the middle third of the epochs is above both others; in the mean over workers."""
    if len(values) < 3:
        return float("nan")
    first, middle, last = (np.nanmean(each, axis=0) for each in np.array_split(values, 3))
    return float(np.mean(middle - np.maximum(first, last)))


# Numbers made of values by epoch (rows) and worker (columns).
HOW: dict[str, Callable[[np.ndarray], float]] = {
    "mean": np.nanmean,
    "sum": np.nansum,
    "max": np.nanmax,
    "min": np.nanmin,
    "first": lambda values: np.nanmean(values[0]),
    "last": lambda values: np.nanmean(values[-1]),
    "irregularity": _gaps,
    "irregularity_of_any": lambda values: _gaps(np.nanmax(values, axis=1, keepdims=True)),
    "falls": _falls,
    "middle": _middle,
    # over workers, in the last epoch
    "spread": lambda values: np.nanstd(values[-1]) / np.nanmean(values[-1]),
}
VALIDATION = {"acc": "val", "auc": "val_auc"}  # columns of validation scores by the leading score
HALF, OWN = "WORKERS/2", "cluster=OWN"  # words that `replayed` replaces by values of the run
# What was spent until a score is reached, as a column of `curve`; "wall" is the epochs times their mean wall
# seconds.
REACHED = {"epochs": "epoch", "seconds": "seconds", "bytes": "megabytes", "wall": "wall"}


def _slowest(times: Times) -> Epoch:
    return max(times.workers, key=lambda own: own.epoch)


def _spent(times: Times, names: Sequence[str]) -> float:
    """Percent of the slowest worker's epoch that segments of these names take."""
    own, named = max(zip(times.workers, times.named), key=lambda both: both[0].epoch)
    return 100 * sum(named.get(name, 0.0) for name in names) / own.epoch


def _imbalance(computing: list[float]) -> float:
    return max(computing) / min(computing) if min(computing) > 0 else float("nan")


# Numbers of a replay, in seconds; "imbalance" is the greatest over the least computing, "waiting_percent" a
# share.
REPLAYED: dict[str, Callable[[Times], float]] = {
    "epoch": lambda times: times.epoch,
    "compute": lambda times: _slowest(times).compute + _slowest(times).rest,
    "imbalance": lambda times: _imbalance([own.compute for own in times.workers]),
    "communicating": lambda times: float(np.mean([own.comm for own in times.workers])),
    "computing": lambda times: float(np.mean([own.compute + own.rest for own in times.workers])),
    "waiting": lambda times: _slowest(times).exposed + _slowest(times).idle,
    "exposed": lambda times: float(np.mean([own.exposed + own.idle for own in times.workers])),
    "waiting_percent": lambda times: 100 * REPLAYED["waiting"](times) / _slowest(times).epoch,
}


def _of_slowest(times: Times, names: Sequence[str]) -> float:
    return _spent(times, names) / 100 * _slowest(times).epoch


def _of_all(times: Times, names: Sequence[str]) -> float:
    return float(np.mean([sum(own.get(name, 0.0) for name in names) for own in times.named]))


# What is added to these where segments of the given names are booked as communication.
BOOKED: dict[str, Callable[[Times, Sequence[str]], float]] = {
    "compute": lambda times, names: -_of_slowest(times, names),
    "computing": lambda times, names: -_of_all(times, names),
    "waiting": _of_slowest,
    "exposed": _of_all,
}
# Numbers of `REPLAYED` that grow with the number of steps, and the value of `whole` that has them grow so.
STEPS = "steps"
SECONDS = ("epoch", "compute", "communicating", "computing", "waiting", "exposed")


def best_validation(run: Run) -> float:
    """The best leading score on the validation vertices, in %; NaN where there is none."""
    best = run.summary["best"]
    found = best and best[VALIDATION[run.summary["score"]]]
    return _number(found and 100 * found)


def _mean_of_best(runs: Sequence[Run]) -> list[float]:
    return [estimate(map(best_validation, runs)).mean] * len(runs)


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    value      of the run; where `reference` is not empty, also of the number that it is held against
    reference  the row that this number comes from, on the same graph
    of_seeds   makes of that row's runs its number for each seed; by default the mean over seeds of the best
               validation score
    scored     whether it is, or depends on, a score, which a run that diverged does not have
    column     the key of the column that it is; "" where it is none
    """

    value: Callable[[Run, float], float]
    reference: str = ""
    of_seeds: Callable[[Sequence[Run]], list[float]] = _mean_of_best
    scored: bool = False
    column: str = ""


def measure_of(given: Any, field: str = "measure", row: str = "") -> Measure:
    """The measure that a file asks for. It is a column's key or a block of keys; the table in
    docs/howto/claims.md has them all, with what each means. InputError where it is none of these.

    field   its place in the file, for messages
    row     the row whose runs are measured
    """
    if isinstance(given, str):
        choice(field, given, ALL)
        column = ALL[given]
        return Measure(lambda run, _: _number(column.value(run.summary)), scored=column.scored, column=given)
    if isinstance(given, Mapping):
        keys = set(given)
        _check_numbers(given, field)
        if "metric" in keys and keys <= {"metric", "how", "layer", "epochs", "per", "times"}:
            how = _how(given.get("how", "mean"), field)
            return Measure(lambda run, _: _metric(run, given, how))
        if keys == {"validation"}:
            how = _how(given["validation"], f"{field}.validation")
            return Measure(lambda run, _: float(how(_validation(run)[:, None])), scored=True)
        if {"metrics", "of"} <= keys <= {"metrics", "of", "layer", "epochs", "least"}:
            return Measure(lambda run, _: _share(run, given))
        if keys == {"shards", "of"}:
            return Measure(
                lambda run, _: float(_shards(run, given["shards"]).sum() / _shards(run, given["of"]).sum())
            )
        if "shards" in keys and keys <= {"shards", "how"}:
            how = _how(given.get("how", "max"), field)
            return Measure(lambda run, _: float(how(_shards(run, given["shards"])[None, :])))
        if keys == {"bytes_per_row", "layer"}:
            return Measure(lambda run, _: _bytes_per_row(run, given["bytes_per_row"], given["layer"]))
        if {"replayed", "words"} <= keys <= {"replayed", "words", "whole", "times", "more", "booked"}:
            what = given["replayed"]
            if not isinstance(what, list):
                choice(f"{field}.replayed", what, REPLAYED)
            booked, more, times = given.get("booked", ()), given.get("more", {}), given.get("times", 1)
            if not isinstance(booked, Sequence) or isinstance(booked, str):
                raise InputError(f"{field}.booked={booked}: give names of segments, as [NAME, ...]")
            if booked:
                choice(f"{field}.booked: replayed", what, BOOKED)
            if not isinstance(more, Mapping):
                raise InputError(f"{field}.more={more}: give rows, each with further words, as ROW: WORDS")
            words = " ".join([str(given["words"]), str(more.get(row, ""))]).strip()
            for each in (words, *(f"{given['words']} {added}" for added in more.values())):
                _known_words(each)
            whole = given.get("whole", False)
            choice(f"{field}.whole", whole, (True, False, STEPS))
            return Measure(lambda run, _: times * replayed(run, what, words, whole, tuple(booked)))
        if {"saved", "of", "words"} <= keys <= {"saved", "of", "words", "whole"}:
            return _saved(given, field)
        if keys == {"to", "of", "in"}:
            if given["in"] == "modelled":
                raise InputError(f"{field}.in=modelled has no cluster: give words, as words: cluster=NAME")
            choice(f"{field}.in", given["in"], REACHED)
            return _until(given, field, lambda run: 1.0)
        if {"to", "of", "in", "words"} <= keys <= {"to", "of", "in", "words", "whole"}:
            if given["in"] != "modelled":
                raise InputError(
                    f"{field}.in={given['in']} takes no words: leave them out, or give in: modelled"
                )
            epoch = measure_of(
                {"replayed": "epoch", **{k: given[k] for k in keys & {"words", "whole"}}}, field
            )
            return _until({**given, "in": "epochs"}, field, lambda run: epoch.value(run, float("nan")))
    raise InputError(
        f"{field}={given}: give a column's key, {{metric: NAME}}, {{metrics: [...], of: [...]}},"
        " {shards: NAME}, {replayed: epoch, words: WORDS}, {saved: [...], of: ROW, words: WORDS} or"
        " {to: SHARE, of: ROW, in: epochs} (or in: modelled, with words)"
    )


def _check_numbers(given: Mapping[str, Any], field: str) -> None:
    """InputError where the numbers of a block cannot be used, whatever it measures."""
    times, epochs = given.get("times", 1), given.get("epochs")
    if not isinstance(times, int | float) or not times > 0:
        raise InputError(f"{field}.times={times}: give a number above 0")
    pair = isinstance(epochs, list) and len(epochs) == 2 and all(isinstance(each, int) for each in epochs)
    if epochs is not None and not pair:
        raise InputError(f"{field}.epochs={epochs}: give the first and the last epoch, as [1, 10]")


def unit_of(given: Any) -> str:
    """What an axis calls a measure."""
    if isinstance(given, str):
        return ALL[given].heading
    if "metrics" in given or isinstance(given.get("replayed"), list):
        return "share, %"
    if "validation" in given:
        return "validation score, %"
    if "to" in given:
        spent = {"epochs": "epochs", "bytes": "MB", "modelled": "modelled s"}.get(given["in"], "s")
        return f"{spent} to the score"
    if "replayed" in given:
        return {"waiting_percent": "share, %", "imbalance": "imbalance"}.get(given["replayed"], "modelled s")
    if "saved" in given:
        return "s saved per s spent"
    if "bytes_per_row" in given:
        return "bytes per row"
    name = str(given["metric"] if "metric" in given else given["shards"]).replace("_", " ")
    return name + (f" / {given['of']}" if "of" in given else f" / {given['per']}" if "per" in given else "")


def _saved(given: Mapping[str, Any], field: str) -> Measure:
    """Seconds saved beside another row, over the seconds spent for it (CaPGNN, Fig. 19)."""
    rest = {key: given[key] for key in ("words", "whole") if key in given}
    epoch = measure_of({"replayed": "epoch", **rest}, field).value
    if not isinstance(given["saved"], list):
        raise InputError(f"{field}.saved={given['saved']}: give names of segments, as [NAME, ...]")
    percent = measure_of({"replayed": given["saved"], **rest}, field).value

    def value(run: Run, base: float) -> float:
        seconds = epoch(run, base)
        spent = seconds * percent(run, base) / 100
        return (base - seconds) / spent if spent else float("nan")

    return Measure(value, str(given["of"]), lambda runs: [epoch(run, float("nan")) for run in runs])


def _until(given: Mapping[str, Any], field: str, each: Callable[[Run], float]) -> Measure:
    """What has been spent until a score is reached, times what `each` says of the run."""
    if not isinstance(given["to"], int | float):
        raise InputError(f"{field}.to={given['to']}: give a share, as 0.99")
    within(f"{field}.to", given["to"], 0, 1)
    return Measure(
        lambda run, best: _reached(run, given["to"] * best, REACHED[given["in"]]) * each(run),
        str(given["of"]),
        scored=True,
    )


def _how(named: Any, field: str) -> Callable[[np.ndarray], float]:
    choice(f"{field}.how", named, HOW)
    return HOW[named]


def _curve(run: Run) -> pd.DataFrame:
    from harness.results.report.curves import curve  # whose module draws: matplotlib takes half a second

    return curve(run, run.summary["score"])


def _validation(run: Run) -> np.ndarray:
    return _curve(run)["val"].to_numpy(float)


def _number(found: float | None) -> float:
    return float("nan") if found is None else float(found)


def _table(run: Run, name: str, given: Mapping[str, Any]) -> np.ndarray:
    """A metric by epoch (rows) and worker (columns), of these layers and epochs; NaN where there is none."""
    metrics = run.trace.metrics
    rows = metrics[metrics["name"] == name]
    if rows.empty:
        _known(dict.fromkeys(metrics["name"]), name, run)
    if given.get("layer") is not None:
        layer = rows["layer"].max() if given["layer"] == "last" else given["layer"]
        rows = rows[rows["layer"] == layer]
    if given.get("epochs") is not None:
        first, last = given["epochs"]
        rows = rows[rows["epoch"].between(first - 1, last - 1)]
    if rows.empty:
        where = [f"{key} {given[key]}" for key in ("layer", "epochs") if given.get(key) is not None]
        raise InputError(f"{run.path} has no {name} of {' and '.join(where)}")
    return rows.groupby(["epoch", "worker"])["value"].sum().unstack("worker").to_numpy(float)


def _metric(run: Run, given: Mapping[str, Any], how: Callable[[np.ndarray], float]) -> float:
    value = float(how(_table(run, given["metric"], given))) * given.get("times", 1)
    return value / float(_shards(run, given["per"]).mean()) if "per" in given else value


def _share(run: Run, given: Mapping[str, Any]) -> float:
    above, below = (
        sum(np.nansum(_table(run, name, given), axis=1) for name in given[key]) for key in ("metrics", "of")
    )
    if given.get("least"):
        shares = above[below > 0] / below[below > 0]
        return float(100 * shares.min()) if len(shares) else float("nan")
    return float(100 * np.sum(above) / np.sum(below))


def _bytes_per_row(run: Run, direction: str, layer: int) -> float:
    comm = run.trace.comm
    sent = comm[(comm["direction"] == direction) & (comm["layer"] == layer) & (comm["rows"] > 0)]
    if sent.empty:
        raise InputError(f"{run.path} sends no row {direction} for layer {layer}")
    return float(sent["bytes"].sum() / sent["rows"].sum())


def _reached(run: Run, target: float, column: str) -> float:
    rows = _curve(run)
    rows["wall"] = rows["epoch"] * run.summary["epoch_s"]
    there = rows[rows["val"] >= target]
    return float(there[column].iloc[0]) if len(there) else float("nan")


@functools.cache
def _known_words(words: str) -> None:
    """InputError where a replay does not know these words. Cached, since a cluster's file takes a while to
    read."""
    parse(["RUN", *words.replace(HALF, "1").replace(OWN, "cluster=cdfgnn").split()])


def replayed(
    run: Run, what: str | list[str], words: str, whole: bool | str, booked: Sequence[str] = ()
) -> float:
    """A number of the replay of a run, as `measure_of` has it.

    what     of REPLAYED; or names of segments, whose share of the slowest worker's epoch is given in percent
    words    of the replay
    whole    True: the graph at its full size; STEPS: as many steps as it has there; False: the graph as it
             was run
    booked   names of segments that count as communication
    """
    scale = float(run.keys.get("dataset.scale") or 1.0)
    half = max(1, int(run.summary["workers"]) // 2)
    if OWN in words:
        words = words.replace(OWN, f"cluster={_known(run.keys, 'cluster.name', run)}")
    more = [f"grown={1 / scale:g}"] if whole is True and scale != 1 else []
    written = max(path.stat().st_mtime_ns for path in run.path.iterdir())
    times = _times(run.path, written, (*words.replace(HALF, str(half)).split(), *more))
    if isinstance(what, list):
        return _spent(times, what)
    steps = 1 / scale if whole == STEPS and what in SECONDS else 1.0
    return steps * (REPLAYED[what](times) + (BOOKED[what](times, booked) if booked else 0.0))


@functools.lru_cache(maxsize=8192)
def _times(path: Path, written: int, words: tuple[str, ...]) -> Times:
    """The replay of a run with these words, cached since several claims ask for one.

    written   when the run's files were last written, so that a run that goes on is replayed anew
    """
    _, replayer, _ = parse([str(path), *words])
    return times_of(replayer.replay(Trace(path)))


def _shards(run: Run, name: str) -> np.ndarray:
    return np.atleast_1d(np.asarray(_known(run.trace.shards, name, run), dtype=float))


def _known(there: Mapping[str, Any], name: str, run: Run) -> Any:
    if name not in there:
        raise InputError(f"{run.path} has no {name}; it has {', '.join(sorted(map(str, there)))}")
    return there[name]
