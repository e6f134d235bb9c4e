"""The report of one run: a few lines at its end; on demand scores, an epoch's time and bytes by purpose."""

from pathlib import Path
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table

from harness.base import tables
from harness.base.terminal import counted
from harness.results.report.compare import change, exact_beside, ratio
from harness.results.report.groups import Group, Run
from harness.results.report.table import compared_by
from harness.results.summary import PARTS


def at_end(run_dir: Path | str, verbose: bool) -> RenderableType:
    """What a run prints at its end: with `verbose` its `run_table`; else its score, bytes and time, how they
    compare with exact training where such a run has finished in the same folder, and notes."""
    if verbose:
        return run_table(run_dir)
    run = Run(Path(run_dir))
    s, grid = run.summary, tables.pairs(_heading(run))
    if s["best"] and s["diverged"] is None:
        name, test, val = _leading(s)
        best = s["best"]
        at = f"at the best validation ({_percent(best[val])}, epoch {best['epoch'] + 1})"
        grid.add_row("score", f"test {name} {_percent(best[test])} {at}")
    sent = sum(s["bytes_epoch"].values()) / 1e6
    after = " after the first" if s["epochs"] > 1 else ""
    grid.add_row("sent", f"{sent:.3f} MB per epoch{after}, {s['bytes_total'] / 1e6:.1f} MB in all")
    wall = s["clock"] == "wall"
    seconds = s["epoch_s"] if wall else s["cpu_slowest"]["epoch_s"]
    grid.add_row("time", f"{seconds:.4f} {'s' if wall else 'CPU s of the busiest worker'} per epoch")
    if sides := exact_beside(run):
        grid.add_row("beside exact", _beside(*sides))
    for note in s["notes"][s["epochs"] > 1 :]:  # the first note says only that means leave out epoch 1
        grid.add_row("note", note)
    return grid


def _beside(ours: Group, exact: Group) -> str:
    """The score minus that of exact training, and bytes and time as shares of exact training's, paired over
    seeds."""
    score, size, time = compared_by([ours, exact], ours.clock)
    ahead, said = change(ours, exact, score), []
    if ahead.n:
        apart = "one seed" if ahead.half is None else "told apart" if ahead.side() else "not told apart"
        said.append(f"{ahead:+.2f} points ({apart})")
    said.append(f"{ratio(ours, exact, size.value):.3f} of its bytes")
    if (ours.clock, ours.first.machine) == (exact.clock, exact.first.machine):
        said.append(f"{ratio(ours, exact, time.value):.2f} of its time")
    seeds = ratio(ours, exact, size.value).n
    return f"{', '.join(said)}; {exact.first.name}, {counted(seeds, 'seed')}"


def _heading(run: Run) -> str:
    s = run.summary
    seed = f", seed {run.seed}" if run.seed is not None else ""
    return (
        f"{run.name} on {s['dataset']}{' (twin)' if s['twin'] else ''}, {counted(s['workers'], 'worker')},"
        f" {Group([run]).partition}{seed}"
    )


def run_table(run_dir: Path | str) -> RenderableType:
    """One run: scores, where an epoch's time goes, bytes by layer and purpose, peak memory, notes."""
    run = Run(Path(run_dir))
    s, group = run.summary, Group([run])
    grid = tables.pairs(_heading(run))
    if group.epochs != str(s["epochs"]) or not run.finished:
        grid.add_row("epochs", group.epochs)
    if s["best"] and s["diverged"] is None:
        _add_scores(grid, s)
    wall = s["clock"] == "wall"
    parts, unit, whose = (s, "s", "") if wall else (s["cpu_slowest"], "CPU s", " of the busiest worker")
    waited = {"exposed_s": "exposed communication"} if wall else {"wait_s": "waiting"}
    names = {"compute_s": "compute", **waited, "rest_s": "rest"}
    if not wall:
        names |= {"sampler_s": "sampling beside it"} if parts.get("sampler_s") else {}
        names["other_threads_s"] = "other threads"
    grid.add_row("epoch", f"{parts['epoch_s']:.4f} {unit}{whose} = {_shares(parts, unit, names)}")
    peak = f"peak memory {s['peak_rss_sum'] / 2**30:.2f} GiB, largest {s['peak_rss_max'] / 2**30:.2f} GiB"
    grid.add_row("all workers", f"{s['cpu_s']:.4f} CPU s per epoch; {peak}")
    first = f"{s['bytes_first_epoch'] / 1e6:.1f} MB of it in the first epoch"
    grid.add_row("sent", f"{s['bytes_total'] / 1e6:.1f} MB in all, {first}")
    for note in s["notes"]:
        grid.add_row("note", note)
    headings = ["MB sent per epoch", *(part.replace("_", " ") for part in (*PARTS, "sum"))]
    sent = tables.shown(headings, box=None, padding=(0, 2, 0, 0), header_style="dim")
    sent.columns[0].style = "dim"
    for purpose, by_part in {**s["bytes_epoch_by_purpose"], "sum": s["bytes_epoch"]}.items():
        sent.add_row(
            purpose, *(f"{by_part[part] / 1e6:.3f}" for part in PARTS), f"{sum(by_part.values()) / 1e6:.3f}"
        )
    return Lines(grid, sent)


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f} %"


def _shares(values: dict[str, float], unit: str, names: dict[str, str]) -> str:
    """The parts of an epoch, with the words of `names` for their keys and each part's share of `epoch_s`."""
    whole = values["epoch_s"]
    return " + ".join(
        f"{values[key]:.4f} {unit} {name} ({100 * values[key] / whole:.0f} %)" for key, name in names.items()
    )


def _leading(s: dict[str, Any]) -> tuple[str, str, str]:
    """The name of the leading score, and its keys of test and validation vertices."""
    accuracy = "F1" if s["multilabel"] else "accuracy"
    return ("AUC", "test_auc", "val_auc") if s["score"] == "auc" else (accuracy, "test", "val")


def _add_scores(grid: Table, s: dict[str, Any]) -> None:
    """Add the leading score at the best validation and at the last evaluation, and the other scores at the
    best validation."""
    best, last = s["best"], s["final"]
    leading, test, val = _leading(s)
    at = f"at the best validation ({_percent(best[val])}, epoch {best['epoch'] + 1})"
    grid.add_row(
        f"test {leading}",
        f"{_percent(best[test])} {at}; {_percent(last[test])} at the last epoch ({last['epoch'] + 1})",
    )
    other = ("accuracy", "test") if s["score"] == "auc" else ("AUC", "test_auc")
    beside = [
        f"{name} {_percent(best[key])}" for name, key in (other, ("balanced accuracy", "test_balanced"))
    ]
    beside += [f"{name.replace('_', ' ')} {_percent(best[f'test_{name}'])}" for name in s["scores"]]
    majority = (s["majority"] or {}).get("test")
    grid.add_row("beside it", f"{', '.join(beside)}; the same answer for every vertex: {_percent(majority)}")
