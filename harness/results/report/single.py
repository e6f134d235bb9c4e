"""What a run and a sweep print at their ends. Of a run a few lines; on demand scores, an epoch's time, and
bytes by purpose. Of a sweep a row per combination of swept keys, with the keys and the results as columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table

from harness.base import tables
from harness.base.terminal import counted
from harness.results.report import groups
from harness.results.report.compare import change, exact_beside, ratio, read_once
from harness.results.report.groups import Group, Run
from harness.results.report.table import compared_by, diverged, estimate_of, less_exact
from harness.results.summary import PARTS

SEED = "seed"  # runs that differ in the seed alone are one row, with their means


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


def swept_table(keys: Sequence[str], runs: Sequence[tuple[dict[str, str], Path]]) -> tuple[Table, list[str]]:
    """The table, its rows in the order in which the runs were made; and a sentence for each row of which runs
    diverged.

    keys   the swept keys, as given on the command line
    runs   (values, folder) of each run: its values of those keys that it has, and its folder; at least one
           epoch of it has finished
    """
    compared, _ = groups.load(dict.fromkeys(path for _, path in runs), read=read_once)
    of_run = {run.path: group for group in compared for run in group.runs}
    shown = {id(of_run[path]): (of_run[path], values) for values, path in runs}
    clock = "cpu" if any(group.clock == "cpu" for group in compared) else "wall"
    score, size, time = compared_by(compared, clock)
    beside = {key: _less_exact(group, compared) for key, (group, _) in shown.items()}
    exact = ["minus exact"] if any(beside.values()) else []
    named = [key for key in keys if key != SEED]
    asked = [key.removeprefix("system.") for key in [*named, *(["seeds"] if SEED in keys else [])]]
    table = tables.shown([*asked, score.heading, *exact, time.heading, size.heading], words=asked)
    said = []
    for key, (group, values) in shown.items():
        if group.diverged:
            row = " ".join(f"{key.removeprefix('system.')}={values[key]}" for key in named if key in values)
            ended = "; its time and MB are of the epochs until then"
            said.append(diverged(group, row or group.label).removesuffix(".") + ended + ".")
        cells = [values.get(name, "") for name in named]
        cells += [str(len(group.seeds))] if SEED in keys else []
        first, *others = (format(estimate_of(group, each), each.digits) for each in (score, time, size))
        table.add_row(*cells, first, *([beside[key]] if exact else []), *others)
    return table, said


def _less_exact(group: Group, compared: list[Group]) -> str:
    """As `less_exact`; where the sweep has no exact training, against that in the folder of its runs."""
    said = less_exact(group, compared)
    if not said and (sides := exact_beside(group.first)):
        said = less_exact(group, [group, sides[1]])
    return said
