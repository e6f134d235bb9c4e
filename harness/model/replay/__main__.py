"""halobench replay RUN... cluster=NAME [cluster.KEY=VALUE ...]: what runs would take on another cluster.

Every number that this prints is modelled, none is measured; docs/replay.md derives each.
"""

from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import pandas as pd

from harness.base import tables
from harness.base.errors import InputError, check_place, writing
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.terminal import Terminal, counted, unfolded
from harness.model.replay import crossover
from harness.model.replay.engine import Timeline
from harness.model.replay.flows import NEAR
from harness.model.replay.settings import Replayer, parse
from harness.model.replay.times import Times, critical_path, times_of
from harness.results.report.__main__ import begun
from harness.results.report.groups import Group, Run

LONGEST = 8  # rows of the critical path that are printed
DESCRIPTION = """\
What runs would take on another cluster, from their traces: epoch seconds, where they go by worker, and the
critical path. All numbers are modelled.

words:
  cluster=NAME             a preset (conf/cluster) or a file that ends in .yaml; traced: the run's own machine
  cluster.KEY=VALUE        a value of it, as cluster.between.gbytes_per_s=0.125
  per_host=N               workers on each host (default: one on each device, in their order)
  cores=N                  the threads of all hosts share N cores: hosts are parts of one machine
  compute=traced|roofline  work lasts as long as traced, or as its operations and bytes take on the devices
  clock=wall|cpu           which seconds of it (default: wall; on another cluster cpu where workers
                           outnumbered the cores, with a roofline, and with cores=)
  efficiency=E             with compute=roofline: share of a device's rates that kinds of work reach for which
                           the cluster gives no rate (default: 1)
  uncounted=traced|none    with compute=roofline: segments whose work was not counted last as traced (the
                           default), or take no time
  straggler=N delay=S slowdown=K   worker N is held up for S seconds in every epoch, its work lasts K times
                           as long
  grown=K                  as if the graph were K times as large
  broadcast=ring|direct    how broadcasts are made (default: ring)

halobench replay crossover RUN... cluster=NAME [link=between|inside|bridge] [gbytes_per_s=0.01:100:13]
  [latency_us=1:1000:4] [epochs=10] [reaches=PERCENT|99%]: which system is fastest over bandwidth and latency,
  and where each pair crosses; with reaches= which is the first at a score on the validation vertices, in
  percent, or at so much of exact training's best
"""


@command("halobench replay")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=DESCRIPTION, formatter_class=AS_WRITTEN)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="RUN|KEY=VALUE",
        help="run folders, folders above some, glob patterns; words",
    )
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write the table in full precision")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="of crossover alone: the folder in which its picture is drawn"
    )
    given = parser.parse_intermixed_args(words)
    if given.csv is not None:
        check_place("csv", given.csv)
    if given.words[0] == "crossover":
        _crossover(given.words[1:], given.csv, given.out)
        return
    if given.out is not None:
        raise InputError(
            f"--out {given.out} is for the picture of halobench replay crossover: leave it out of a replay,"
            " or give --csv FILE for the table"
        )
    _replay(given.words, given.csv)


def _replay(words: Sequence[str], table: Path | None) -> None:
    runs, replayer, _ = parse(words)
    console = unfolded()
    rows: list[dict[str, Any]] = []
    for group in begun(runs):
        for run in group.runs:
            timeline = replayer.replay(run.trace)
            times = times_of(timeline)
            _print(console, group, run, replayer, timeline, times)
            rows += _rows(group, run.path, replayer, times)
            run.trace.forget("spans")
    epochs = {row["run"]: row["epoch_s"] for row in rows}
    if len(epochs) > 1:
        beside = [(_ms(epochs[run]), run) for run in sorted(epochs, key=epochs.__getitem__)]
        console.print(tables.shown(["modelled epoch, ms", "run"], beside, words=["run"]))
    if table is not None:
        write_csv(table, rows)


def _print(
    console: Terminal, group: Group, run: Run, replayer: Replayer, timeline: Timeline, times: Times
) -> None:
    workers, epochs = timeline.program.workers, len(timeline.program.epochs)
    so_far = "" if run.finished else f", not finished: {counted(epochs, 'epoch')} so far"
    console.say(
        f"{group.label}, {group.dataset}, {counted(workers, 'worker')}{so_far} ({run.path})\n"
        f"modelled on cluster={replayer.display_name}: {_said(replayer, run)}"
    )
    if replayer.clock(run.trace) == "wall" and replayer.settings.compute != "roofline":
        for busy in (note for note in run.summary["notes"] if "other programs" in note):
            console.say(f"note: the run's {busy}; clock=cpu replays CPU seconds")
    roofline = replayer.rooflines.get(run.path)
    assumed = timeline.platform.assumed + (roofline.assumed if roofline is not None else [])
    if assumed:
        console.say(f"assumed, since the cluster does not say: {', '.join(assumed)}")
    if roofline is not None:
        console.say(roofline.said())
    whose = "the slowest worker's"
    if timeline.program.updates is not None:
        made = ", ".join(str(len(own)) for own in timeline.begins)
        whose = f"{counted(timeline.program.workers, 'update')} from whoever is first (rounds made: {made})"
    over = "mean over epochs without the first" if len(timeline.program.epochs) > 1 else "of the one epoch"
    console.say(
        f"epoch {_ms(times.epoch)} ms, {whose}, {over}"
        f" (measured on the machine of the run, waits and all: {_ms(run.summary['epoch_s'])} ms of wall"
        " time)"
    )
    if timeline.merged:
        console.say(
            f"put together: flows that begin or end within {NEAR:.1%} of their duration of one another"
        )
    headings = ["worker", "epoch ms", "compute", "rest", "exposed", "idle", "behind", "in flight"]
    lines = ([worker, *map(_ms, astuple(own))] for worker, own in enumerate(times.workers))
    console.print(tables.shown(headings, lines, words=()))
    path_of = critical_path(timeline)
    if not path_of:
        console.print("asynchronous: no worker waits for another, so no path through several is critical")
        return
    longest = [*path_of.items()][:LONGEST]
    if others := [*path_of.values()][LONGEST:]:
        longest.append((f"{len(others)} more", sum(others)))
    whole = sum(path_of.values())
    lines = ([_ms(seconds), f"{100 * seconds / whole:.1f} %", name] for name, seconds in longest)
    console.print(tables.shown(["ms", "share", "critical path"], lines, words=["critical path"]))


def _said(replayer: Replayer, run: Run) -> str:
    """How a replay was made, in a few words."""
    settings, clock = replayer.settings, replayer.clock(run.trace)
    lasts = f"work as traced, in {'wall' if clock == 'wall' else 'CPU'} seconds"
    if settings.compute == "roofline":
        rest = "takes no time" if settings.uncounted == "none" else f"lasts {lasts.removeprefix('work ')}"
        lasts = f"work by roofline; what is not counted {rest}"
    slow = ""
    if settings.straggler is not None:
        slow = f"; worker {settings.straggler} held up {settings.delay:g} s per epoch, its work"
        slow += f" {settings.slowdown:g} times as long"
    if replayer.described is None:
        return f"{lasts}; waits as traced{slow}"
    hosts = f"; {settings.per_host} per host" if settings.per_host is not None else ""
    if settings.cores is not None:
        hosts += f"; {counted(settings.cores, 'core')} for all hosts"
    elif clock == "cpu" and (cores := replayer.described.host_cores) and replayer.described.device_cores:
        hosts += f"; {counted(cores, 'core')} per host"
    larger = f"; the graph {settings.grown:g} times as large" if settings.grown != 1 else ""
    made = f"broadcast {settings.broadcast}"
    made += "; exchanges overlap where their papers have it" if settings.overlap == "published" else ""
    made += "; speeds fitted to what is printed" if settings.fit == "printed" else ""
    return f"{lasts}; {made}{hosts}{larger}{slow}"


def _rows(group: Group, path: Path, replayer: Replayer, times: Times) -> list[dict[str, Any]]:
    """A row per worker, in seconds."""
    key = {
        "run": str(path),
        "label": group.label,
        "dataset": group.dataset,
        "cluster": replayer.display_name,
        "modelled": True,
        "epoch_s": times.epoch,
    }
    return [
        {**key, "worker": worker, **{f"worker_{name}_s": value for name, value in asdict(own).items()}}
        for worker, own in enumerate(times.workers)
    ]


def _crossover(words: Sequence[str], table: Path | None, out: Path | None) -> None:
    runs, replayer, given = parse(words, crossover.KEYS)
    if out is not None:
        with writing(out, "give another --out"):
            out.mkdir(parents=True, exist_ok=True)
    found = crossover.search(begun(runs), replayer, crossover.Grid.of(given))
    console = unfolded()
    console.say(crossover.text(found))
    if table is not None:
        write_csv(table, crossover.rows(found))
    if out is not None:
        console.say(f"written: {crossover.draw(found, out)}")


def write_csv(path: Path, rows: list[dict[str, Any]] | pd.DataFrame) -> None:
    with writing(path, "give another --csv"):
        path.write_text(tables.csv(pd.DataFrame(rows, dtype=object)))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
