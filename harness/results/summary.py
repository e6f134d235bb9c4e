"""summary.json: a run in one object, every value derived from its tables as docs/trace.md says."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.comm.names import SAMPLER
from harness.data.config import name_of
from harness.results.reader import Trace
from harness.results.rounds import Rounds, epochs_of_run
from harness.results.schema import NOT_FINITE, SCHEMA_VERSION, SCORES

PARTS = ("layer_0", "hidden", "other")  # parts of the bytes: `comm.layer` 0, above 0, and -1
WHOLE_CORE = 0.8  # share of a core below which wall times are not to be trusted


def summarise(run: Path | Trace) -> dict[str, Any]:
    """The run in one object. The object of an unfinished run covers what the run has traced so far.

    Times are means in seconds over the epochs from 1 on: epoch 0 compiles, allocates and fetches what is
    fetched once (it counts only in a run of one epoch). Wall times are those of each epoch's slowest worker,
    so that compute + exposed + rest is the epoch. Bytes are sums over workers. Scores are null where nothing
    was evaluated.

    Epochs of an asynchronous run are those of the run, P updates each; `_warm` describes its means.
    InputError where no epoch has finished."""
    trace = run if isinstance(run, Trace) else Trace(run)
    epochs = trace.epochs
    if epochs.empty:
        raise InputError(f"{trace.run_dir} holds no finished epoch; let it run longer")
    rounds, of_run = Rounds.read(trace), epochs_of_run(epochs)
    last = int(of_run["epoch"].max())
    warm = _warm(trace, rounds, last)
    slowest = warm.epochs.loc[warm.epochs.groupby("epoch")["train_s"].idxmax()]
    sent = trace.comm
    workers, cores, gpus = rounds.workers, int(trace.environment["cores"]), _gpus(trace)
    crowded = not gpus and workers > cores
    # Sentences for a reader: of which epochs the means are, and whatever makes the values hard to compare.
    first = "compiles, allocates and fetches what is fetched once"
    notes = [
        f"means over epochs 2 to {last + 1}: the first {first}"
        if last
        else f"times and bytes are of one epoch, the first, which {first}"
    ]
    made = rounds.epochs.groupby("worker").size().tolist() if rounds.asynchronous else None
    if made:
        notes.append(
            f"asynchronous: workers made {', '.join(map(str, made))} rounds, which are {last + 1} epochs of "
            f"{workers} updates; times per epoch are a worker's whole time over the number of epochs"
        )
    if crowded:
        notes.append(
            f"{workers} workers outnumber {counted(cores, 'core')}: wall time measures the machine, so tables"
            " use CPU seconds"
        )
    if 0 < gpus < workers:
        notes.append(
            f"{workers} workers shared {counted(gpus, 'GPU')}: wall time holds what they took from each other"
        )
    share = _core_share(trace.spans, min(1, last))
    if share < WHOLE_CORE and not crowded and not gpus:
        notes.append(
            f"computing threads had a core for {100 * share:.0f} % of their time only: other programs ran"
            " beside, so wall times are too long"
        )
    name = graph_name(trace)
    diverged = diverged_at(trace)
    if diverged is not None:
        notes.append(
            f"diverged: from epoch {diverged + 1} on the loss or the logits are not finite, so it has no"
            " accuracy"
        )
    notes += _stopped_early(trace, of_run)
    notes += _attempts(trace)
    return {
        "schema": SCHEMA_VERSION,
        "dataset": name,
        "twin": name.startswith("twin/"),
        "workers": workers,
        "cores": cores,
        "epochs": last + 1,
        "rounds": made,
        "clock": "cpu" if crowded else "wall",
        "notes": notes,
        "loss": float(of_run["loss"].iloc[-1]),
        "diverged": diverged,
        "score": (score := leading_score(trace)),
        "multilabel": bool(_shards(trace).get("multilabel")),
        "scores": own_scores(trace),
        **_scores(of_run, score, trace),
        "majority": _shards(trace).get("majority"),
        "epoch_s": float(slowest["train_s"].mean()),
        "epoch_median_s": float(slowest["train_s"].median()),
        "first_epoch_s": float(epochs.loc[epochs["epoch"] == epochs["epoch"].min(), "train_s"].max()),
        "train_total_s": rounds.total("train_s"),
        **{
            column: float(slowest[column].mean()) for column in ("compute_s", "comm_s", "exposed_s", "rest_s")
        },
        "cpu_s": float(warm.epochs.groupby("epoch")["cpu_s"].sum().mean()),
        "cpu_slowest": _cpu_of_slowest(warm.epochs, warm.spans, trace.metrics),
        "core_share": share,
        "mini_batches": _takes_seeds(trace.metrics),
        "seeds_epoch": _seeds(trace, rounds, min(1, last)),
        "flops_epoch": float(warm.epochs.groupby("epoch")["flops"].sum().mean()),
        "rows_total": int(sent["rows"].sum()),
        "bytes_total": int(sent["bytes"].sum()),
        "bytes_first_epoch": int(sent.loc[sent["epoch"] == 0, "bytes"].sum()),
        **_bytes(warm),
        "peak_rss_max": int(epochs["peak_rss_bytes"].max()),
        "peak_rss_sum": int(epochs.groupby("worker")["peak_rss_bytes"].max().sum()),
    }


@dataclass
class _Warm:
    """The rows that means are taken over.

    epochs   rows of the table `epochs`, one per epoch and worker
    spans    rows of `spans`
    sent     rows of `comm`
    count    how many epochs these are
    """

    epochs: pd.DataFrame
    spans: pd.DataFrame
    sent: pd.DataFrame
    count: float


def _warm(trace: Trace, rounds: Rounds, last: int) -> _Warm:
    """The epochs from 1 on, or of an asynchronous run the rounds from 1 on that are in an epoch of the run.

    The workers of an asynchronous run do not wait for the slowest one of an epoch. So each worker's rounds
    are added up and divided by the number of epochs that all workers' rounds make together. The result is one
    epoch of mean length, with one row per worker."""
    first = min(1, last)
    tables = rounds.epochs, trace.spans[["epoch", "worker", "kind", "cpu_s"]], trace.comm
    epochs, spans, sent = (table[table["epoch"] >= first] for table in tables)
    if not rounds.asynchronous:
        # While a run goes on some workers may have written an epoch that others have not.
        whole = epochs.groupby("epoch")["worker"].nunique() == rounds.workers
        if whole.any() and not whole.all():
            last = int(whole.index[whole].max())
            epochs, spans, sent = (table[table["epoch"] <= last] for table in (epochs, spans, sent))
        return _Warm(epochs, spans, sent, max(last, 1))
    epochs = epochs[epochs["of_run"].notna()]
    keys, count = epochs[["epoch", "worker"]], len(epochs) / rounds.workers
    spans, sent = spans.merge(keys), sent.merge(keys)
    mean = (epochs.groupby("worker").sum() / count).assign(epoch=first).reset_index()
    return _Warm(mean, spans.assign(epoch=first, cpu_s=spans["cpu_s"] / count), sent, count)


def _takes_seeds(metrics: pd.DataFrame) -> bool:
    """Whether the run's system trains on mini-batches."""
    return bool((metrics["name"] == "seeds").any())


def _seeds(trace: Trace, rounds: Rounds, first: int) -> float | None:
    """How many training vertices an epoch takes the loss of, on all workers, as a mean over the epochs from
    `first` on: the seeds of mini-batches, else all training vertices. None for an asynchronous run, whose
    rounds are not its epochs, and where shards.json does not say how many there are."""
    if rounds.asynchronous:
        return None
    metrics = trace.metrics
    taken = metrics[(metrics["name"] == "seeds") & (metrics["epoch"] >= first)]
    if len(taken):
        return float(taken.groupby("epoch")["value"].sum().mean())
    train = _shards(trace).get("train")
    return None if train is None else float(train)


def _core_share(spans: pd.DataFrame, first: int) -> float:
    """CPU seconds over wall seconds of the compute segments. Well below 1, other programs had the cores."""
    compute = spans[(spans["kind"] == "compute") & (spans["epoch"] >= first)]
    wall = float((compute["end_s"] - compute["start_s"]).sum())
    return float(compute["cpu_s"].sum()) / wall if wall else 1.0


def _gpus(trace: Trace) -> int:
    """GPUs the run could use; 0 for a run on the CPU."""
    attempts = trace.resolved["attempts"] if trace.resolved else []
    devices = {each.get("device") for each in attempts} or {trace.config.get("device")}
    return 0 if devices == {"cpu"} else len(trace.environment.get("gpus") or [])


def graph_name(trace: Trace) -> str:
    """The graph's own name; a twin's begins with "twin/"."""
    if name := _shards(trace).get("graph"):
        return str(name)
    dataset = trace.config["dataset"]
    prefix = "twin/" if dataset.get("source") == "twin" else ""
    return prefix + name_of(dataset).removeprefix(prefix)


def _shards(trace: Trace) -> dict[str, Any]:
    """Statistics of the partition; none where the run folder has never had any."""
    return trace.shards if trace.has_shards else {}


def diverged_at(trace: Trace) -> int | None:
    """The first epoch whose loss, or whose logits in the evaluation, are not finite; None without one."""
    run, metrics = epochs_of_run(trace.epochs), trace.metrics
    broken = run.loc[~np.isfinite(run["loss"].to_numpy()), "epoch"]
    # A null loss is not known, which is not the same as not finite; pandas shows both as NaN.
    if len(broken):
        broken = broken[~broken.index.isin(trace.unknown_losses)]
    epochs = [*broken, *metrics.loc[metrics["name"] == NOT_FINITE, "epoch"]]
    return int(min(epochs)) if epochs else None


def _attempts(trace: Trace) -> list[str]:
    """A note where attempts of the run were made by different code, or on different machines."""
    attempts = trace.resolved["attempts"] if trace.resolved else []
    said = []
    if begun := [str(each["first_epoch"] + 1) for each in attempts if each["first_epoch"] > 0]:
        anew = "which compiles and allocates anew and is in the means"
        said.append(f"went on in epoch {', '.join(begun)}, {anew}")
    for key, what in (("code", "by different code"), ("machine", "on different machines")):
        told = [each for each in attempts if each.get(key)]
        if len({each[key] for each in told}) > 1:
            parts = [f"{each[key]} from epoch {each['first_epoch'] + 1} on" for each in told]
            said.append(f"computed {what}: {', '.join(parts)}")
    return said


def leading_score(trace: Trace) -> str:
    """The score by which the run is judged and its best epoch is chosen: "auc" for a graph with two classes,
    of which one may be most of the graph, else "acc" (accuracy, or micro-F1 where vertices have several
    labels). Where the run was evaluated but a split with vertices has no AUC, since all have one label, it is
    "acc"."""
    shards, epochs = _shards(trace), trace.epochs
    two = shards.get("classes") == 2 and not shards.get("multilabel")
    there = epochs.notna().any()
    lacking = there["train_acc"] and not (there["test_auc"] and there["val_auc"] >= there["val_acc"])
    return "auc" if two and not lacking else "acc"


def validation_scores(trace: Trace) -> pd.Series:
    """The leading validation score, 0 to 1, by epoch of the run (0-based), of those that were evaluated."""
    epochs = epochs_of_run(trace.epochs).drop_duplicates("epoch").set_index("epoch")
    return epochs[f"val_{leading_score(trace)}"].dropna()


def own_scores(trace: Trace) -> list[str]:
    """The names of the run's scores beside accuracy, AUC and balanced accuracy (`score=NAME`)."""
    return list(trace.config.get("score") or {})


def _stopped_early(trace: Trace, epochs: pd.DataFrame) -> list[str]:
    """A note where the run ended because `evaluate.patience` evaluations had no better validation score."""
    patience = (trace.config.get("evaluate") or {}).get("patience", 0)
    if not patience:
        return []
    by = validation_scores(trace)
    last = int(epochs["epoch"].max())
    if by.empty or last + 1 == trace.config.get("epochs"):
        return []
    best = int(by.index[int(by.argmax())])
    if (by.index > best).sum() < patience:
        return []
    score = {"acc": "accuracy", "auc": "AUC"}[leading_score(trace)]
    return [
        f"stopped early after epoch {last + 1}: {counted(patience, 'evaluation')} in a row without a better"
        f" validation {score} than that of epoch {best + 1}"
    ]


def _scores(epochs: pd.DataFrame, leading: str, trace: Trace) -> dict[str, Any]:
    """`final`: the scores of the last evaluation; `best`: those of the evaluation with the highest leading
    validation score, the first of equals (of the last evaluation where the graph has no validation vertices).
    """
    scored = epochs.drop_duplicates("epoch").dropna(subset=["train_acc"])
    if scored.empty:
        return {"final": None, "best": None}
    by = scored[f"val_{leading}"]
    rows = {
        "final": scored.iloc[-1],
        "best": scored.iloc[by.argmax()] if by.notna().any() else scored.iloc[-1],
    }
    names = {name.removesuffix("_acc"): name for name in SCORES}
    found = {
        at: {"epoch": int(row["epoch"]), **{name: _known(row[column]) for name, column in names.items()}}
        for at, row in rows.items()
    }
    own, metrics = [f"{at}_{name}" for name in own_scores(trace) for at in ("val", "test")], trace.metrics
    for at in found.values() if own else ():
        values = metrics[metrics["epoch"] == at["epoch"]].groupby("name")["value"].first()
        at |= {name: _known(values.get(name, math.nan)) for name in own}
    return found


def _known(accuracy: float) -> float | None:
    """None for a split without vertices."""
    return None if math.isnan(accuracy) else float(accuracy)


def _cpu_of_slowest(warm: pd.DataFrame, spans: pd.DataFrame, metrics: pd.DataFrame) -> dict[str, float]:
    """CPU seconds of each epoch's busiest worker, as means over the epochs, and their parts: the training
    thread (compute, wait, rest), threads that sample beside it, and other threads."""
    busiest = warm.loc[warm.groupby("epoch")["cpu_s"].idxmax()].set_index("epoch")

    def total(rows: pd.DataFrame, column: str, named: np.ndarray) -> pd.Series:
        here = named & (rows["worker"].to_numpy() == busiest["worker"].reindex(rows["epoch"]).to_numpy())
        sums = rows[column][here].groupby(rows["epoch"][here]).sum()
        of_every_epoch: pd.Series = sums.reindex(busiest.index, fill_value=0.0)
        return of_every_epoch

    kind = spans["kind"].to_numpy()
    compute, wait, rest = (total(spans, "cpu_s", kind == each) for each in ("compute", "wait", "rest"))
    beside = busiest["cpu_s"] - (compute + wait + rest)
    # A sampler works ahead: part of its CPU seconds fell into an earlier epoch, or into none. So they are cut
    # to what the other parts leave.
    sampler = np.minimum(total(metrics, "value", metrics["name"].to_numpy() == SAMPLER), beside)
    return {
        "epoch_s": float(busiest["cpu_s"].mean()),
        "compute_s": float(compute.mean()),
        "wait_s": float(wait.mean()),
        "rest_s": float(rest.mean()),
        "sampler_s": float(sampler.mean()),
        "other_threads_s": float((beside - sampler).mean()),
    }


def _bytes(warm: _Warm) -> dict[str, Any]:
    """Bytes per epoch, summed over workers: means over the epochs of `warm`, as times are."""
    sent, count = warm.sent, warm.count
    layer = sent["layer"].to_numpy()
    part = np.select([layer == 0, layer < 0], ["layer_0", "other"], "hidden")
    by_purpose = sent.groupby(["purpose", part])["bytes"].sum().unstack(fill_value=0)
    by_part, by_purpose = by_purpose.sum() / count, by_purpose / count
    return {
        "bytes_epoch": {name: float(by_part.get(name, 0.0)) for name in PARTS},
        "bytes_epoch_by_purpose": {
            str(purpose): {name: float(row.get(name, 0.0)) for name in PARTS}
            for purpose, row in by_purpose.iterrows()
        },
    }
