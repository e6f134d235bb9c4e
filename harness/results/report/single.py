"""The report of one run: a few lines at its end; on demand scores, an epoch's time and bytes by purpose."""

from pathlib import Path
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table

from harness.base import tables
from harness.base.terminal import counted
from harness.results.report.compare import change, exact_beside, ratio, read_once
from harness.results.report.groups import Group, Run
from harness.results.report.table import compared_by
from harness.results.summary import PARTS


def run_table(run_dir: Path | str, verbose: bool = True) -> RenderableType:
    """What a run prints at its end: its score, bytes and time, how they compare with exact training where
    such a run has finished in the same folder, and notes. With `verbose`, instead of the comparison, all
    scores, the parts of an epoch's time, memory, and bytes by layer and purpose."""
    run = read_once(Path(run_dir))
    s, grid, epochs = run.summary, tables.pairs(_heading(run)), Group([run]).epochs
    if verbose and epochs != str(s["epochs"]):
        grid.add_row("epochs", epochs)
    if s["best"] and s["diverged"] is None:
        _add_scores(grid, s, verbose)
    sent = sum(s["bytes_epoch"].values()) / 1e6
    after = " after the first" if s["epochs"] > 1 else ""
    first = f", {s['bytes_first_epoch'] / 1e6:.1f} MB of it in the first epoch" if verbose else ""
    whole = s["bytes_total"] / 1e6
    digits = 1 if whole >= 1 else 3
    grid.add_row("sent", f"{sent:.3f} MB per epoch{after}, {whole:.{digits}f} MB in all{first}")
    wall = s["clock"] == "wall"
    parts, unit = (s, "s") if wall else (s["cpu_slowest"], "CPU s of the busiest worker")
    time = f"{parts['epoch_s']:.4f} {unit} per epoch"
    if verbose:
        peak = f"peak memory {s['peak_rss_sum'] / 2**30:.2f} GiB, largest {s['peak_rss_max'] / 2**30:.2f} GiB"
        grid.add_row("time", f"{time} = {_shares(parts, wall)}")
        grid.add_row("all workers", f"{s['cpu_s']:.4f} CPU s per epoch; {peak}")
    else:
        grid.add_row("time", time)
        if sides := exact_beside(run):
            grid.add_row("beside exact", _beside(*sides))
    # The first note of a run of several epochs says only that means leave out the first.
    said = 1 if s["epochs"] > 1 and not verbose else 0
    for note in s["notes"][said:]:
        grid.add_row("note", note)
    return Lines(grid, _bytes(s)) if verbose else grid


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


def _bytes(s: dict[str, Any]) -> Table:
    """Bytes of an epoch, by purpose and by layer."""
    headings = ["MB sent per epoch", *(part.replace("_", " ") for part in (*PARTS, "sum"))]
    sent = tables.shown(headings, box=None, padding=(0, 2, 0, 0), header_style="dim")
    sent.columns[0].style = "dim"
    for purpose, by_part in {**s["bytes_epoch_by_purpose"], "sum": s["bytes_epoch"]}.items():
        sizes = [*(by_part[part] for part in PARTS), sum(by_part.values())]
        sent.add_row(purpose, *(f"{size / 1e6:.3f}" for size in sizes))
    return sent


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.2f} %"


def _shares(parts: dict[str, float], wall: bool) -> str:
    """The parts of an epoch in seconds of the run's clock, each with its share of the epoch."""
    waited = {"exposed_s": "exposed communication"} if wall else {"wait_s": "waiting"}
    names = {"compute_s": "compute", **waited, "rest_s": "rest"}
    if not wall:
        names |= {"sampler_s": "sampling beside it"} if parts.get("sampler_s") else {}
        names["other_threads_s"] = "other threads"
    unit, whole = "s" if wall else "CPU s", parts["epoch_s"]
    return " + ".join(
        f"{parts[key]:.4f} {unit} {name} ({100 * parts[key] / whole:.0f} %)" for key, name in names.items()
    )


def _add_scores(grid: Table, s: dict[str, Any], verbose: bool) -> None:
    """Add the leading score at the best validation; with `verbose` also that of the last evaluation, and the
    other scores at the best validation."""
    best, last, auc = s["best"], s["final"], s["score"] == "auc"
    accuracy = "F1" if s["multilabel"] else "accuracy"
    leading, test, val = ("AUC", "test_auc", "val_auc") if auc else (accuracy, "test", "val")
    said = f"test {leading} {_percent(best[test])} at the best validation ({_percent(best[val])}, epoch"
    said += f" {best['epoch'] + 1})"
    if not verbose:
        grid.add_row("score", said)
        return
    grid.add_row("score", f"{said}; {_percent(last[test])} at the last epoch ({last['epoch'] + 1})")
    other = {"accuracy": "test"} if auc else {"AUC": "test_auc"}
    other |= {"balanced accuracy": "test_balanced"}
    other |= {name.replace("_", " "): f"test_{name}" for name in s["scores"]}
    beside = ", ".join(f"{name} {_percent(best[key])}" for name, key in other.items())
    majority = (s["majority"] or {}).get("test")
    grid.add_row("beside it", f"{beside}; the same answer for every vertex: {_percent(majority)}")
