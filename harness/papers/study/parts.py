"""The study's tables: what finished runs say, kept whole in `study.csv`, and what the page shows of it."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

USUAL = "metis,random"  # partitions, as on the command line
TABLE = "study.csv"
PLACE = ("graph", "kind", "part")  # the columns of TABLE that say where a row belongs
# Further columns beside those of the report: how a part was made and what it lacks (in its first row, as are
# the table's notes), the machine, and the score that leads.
SAID, NOTES, MACHINE, LEADING, SYSTEM = "said", "notes", "machine", "leading score", "system"
PAGE = """# Systems on real graphs

Written by `halobench study --data-dir ../shared/data`, and not edited; what was made with other
options says so. 4 workers. The tables here have the columns that compare systems. [study.csv](study.csv) has
every column with its interval over seeds: scores, seeds one by one, CPU seconds by kind of work, bytes by
layer and per run, and the notes below each table.

Each graph has two kinds of rows:

- **One setting for all** (`conf/experiment/systems.yaml` has the rows as commands): GCN of 2 layers, hidden
  64, dropout 0.5, Adam 0.01, weight decay 5e-4, no norm; raw features fetched once, which is exact
  (`vanilla, refetch` fetches them in every epoch). What differs between rows is the system alone.
- **The papers' settings** (`conf/experiment/systems_at_papers.yaml`): each system as its paper has it, beside
  exact training (`vanilla`) and the control (`zero_halo`) at the same model and optimiser. All but PipeGCN
  and DIGEST fetch raw features in every epoch there, as their papers do.

METIS leads; random partitions are the stress test: most of a row's weight is remote there, and staleness by
an epoch under Adam need not settle ([why](../staleness.md)). CDFGNN stands in both with a vertex-cut of its
own (EBV).

- The score is that of the test vertices at the best validation score, in percent, the mean over seeds. Graphs
  of two classes have AUC, the others accuracy. `- exact` is the score minus that of exact training under the
  same setting, paired over seeds, ± half a 95 % interval (Student's t).
- `zero_halo` is the control: a system no better than it uses no remote information. Where its own `- exact`
  reaches 0 within the interval, the score tells nothing of remote information on that graph. Evaluation is
  exact and sees the whole graph for all, the control too.
- `MB` is per epoch (10^6 bytes), summed over workers, and `CPU s` per epoch of the busiest worker, without
  the first epoch. Workers outnumber cores: wall time would measure the machine. `*` marks the best of a
  column.
- `llcg` takes five optimiser steps per epoch; its row of a fifth of the epochs takes as many steps as the
  others. `distdgl` and `bytegnn` take one per mini-batch of 4 x 32 training vertices (4 x 1000 on tolokers
  and coauthor-physics, where most vertices train), `gas`, `cluster_gcn` and `graphsaint` one per subgraph:
  compare them over time, bytes and steps, and not over epochs.
- `cluster=` names device speeds that CaPGNN's RAPA reads; nobody ran on them.
- A row that is neither in a graph's tables nor named there as not made is younger than the tables.
- What each system does, knob by knob: the pages beside this one.
"""

# Rows of a part by the column's heading; and all parts by graph, kind of rows, and heading: the partition,
# and after a colon the rows where they are some alone.
Rows = list[dict[str, str]]
Parts = dict[str, dict[str, dict[str, Rows]]]


def tables_of(
    there: dict[str, dict[Path, str]], unmade: dict[str, list[str]], said: list[str]
) -> dict[str, Rows]:
    """By partition the report's rows; the first says how they were made (`said`) and what is missing."""
    # pandas: only where there is something to tell of.
    from harness.results.report import groups
    from harness.results.report.table import sections

    made: dict[str, Rows] = {}
    for partition in dict.fromkeys([*there, *unmade]):
        missing = unmade.get(partition)
        lacks = [f"Not made when this was written: {'; '.join(missing)}."] if missing else []
        rows, table = there.get(partition), []
        if rows is not None:
            compared, _ = groups.load(rows)
            row_of = {id(group): rows[group.runs[0].path] for group in compared}
            order, groups_of = list(dict.fromkeys(rows.values())), Counter(row_of.values())
            compared.sort(key=lambda group: order.index(row_of[id(group)]))
            for group in compared:
                row = row_of[id(group)]
                group.label = row + group.more_steps if groups_of[row] == 1 else f"{row}: {group.label}"
            for section in sections(compared):
                frame = section.cells().marked("*")
                leading = next(str(name) for name in frame if str(name).startswith("test "))
                notes = {NOTES: "\n".join(section.notes("*"))}
                for cells in frame.to_dict("records"):
                    table.append(
                        {
                            **{str(k): v for k, v in cells.items()},
                            LEADING: leading,
                            MACHINE: section.title,
                            **notes,
                        }
                    )
                    notes = {}
        made[partition] = table or [{}]
        made[partition][0][SAID] = " ".join([*said, *lacks])
    return made


def shown(parts: dict[str, Rows]) -> str:
    """Partitions side by side: where and how they were made, and their columns that compare systems."""
    machines = dict.fromkeys(row[MACHINE] for rows in parts.values() for row in rows if row.get(MACHINE))
    notes = [f"**{'; '.join(machines)}**"] if machines else []
    notes += [f"- {name}: {rows[0][SAID]}" for name, rows in parts.items() if rows[0].get(SAID)]
    lines: dict[str, list[str]] = {
        row[SYSTEM]: [] for rows in parts.values() for row in rows if row.get(SYSTEM)
    }
    headings = [SYSTEM]
    for name, rows in parts.items():
        have = {row[SYSTEM]: row for row in rows if row.get(SYSTEM)}
        if not have:
            continue
        first = next(iter(have.values()))
        clock = next(key for key in first if key.startswith("epoch ") and key.endswith(" s") and first[key])
        headings += [
            f"{name}: {first[LEADING].removeprefix('test ')}",
            "- exact",
            "MB",
            clock[len("epoch ") :],
        ]
        for system, line in lines.items():
            row = have.get(system, {})
            line += [_mean(row.get(first[LEADING], "")), row.get("minus exact", "")]
            line += [_mean(row.get("MB per epoch", "")), _mean(row.get(clock, ""))]
    table = [
        headings,
        ["---", *["--:"] * (len(headings) - 1)],
        *([name, *line] for name, line in lines.items()),
    ]
    return "\n\n".join(
        [
            *notes[:1],
            *(["\n".join(notes[1:])] if notes[1:] else []),
            *(["\n".join(f"| {' | '.join(cells)} |" for cells in table)] if lines else []),
        ]
    )


def _mean(cell: str) -> str:
    """A value without its interval, marked as it is."""
    mean = cell.partition(" ± ")[0].removesuffix(" *")
    return f"{mean}*" if cell.endswith("*") else mean


def place(heading: str) -> tuple[int, str]:
    """METIS leads, random parts follow, then whatever else was asked for; some of the rows after all."""
    usual, partition = USUAL.split(","), heading.partition(":")[0]
    return (usual.index(partition) if partition in usual else len(usual)), heading


def read_parts(path: Path) -> Parts:
    """What `write_parts` wrote; none where there is no file."""
    made: Parts = {}
    if path.exists():
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                graph, kind, part = (row.pop(key) for key in PLACE)
                made.setdefault(graph, {}).setdefault(kind, {}).setdefault(part, []).append(row)
    return made


def write_parts(made: Parts, path: Path) -> None:
    """Every part's rows, in the order of `made`; a graph's partitions in theirs."""
    rows = [
        {**dict(zip(PLACE, (graph, kind, part))), **row}
        for graph, kinds in made.items()
        for kind, parts in kinds.items()
        for part in sorted(parts, key=place)
        for row in parts[part]
    ]
    with open(path, "w", newline="") as file:
        table = csv.DictWriter(file, dict.fromkeys(key for row in rows for key in row), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
