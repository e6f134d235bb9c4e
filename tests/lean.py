"""`python -m tests.lean`: bring the tables of docs/systems/lean.md up to date with results/reference.

A cell is a graph, its split and a partition. Bytes are of `lean_bytes` (4 workers) and `lean_bytes_eight`,
accuracy and CPU seconds of `lean_accuracy`, and accuracy of `lean_computers` where it has more seeds.
"""

from __future__ import annotations

import operator
import sys
import textwrap
from pathlib import Path

import pandas as pd

from tests.kept import ROOT, called, kept, mean, of, said, with_tables

PAGE, COMMAND = ROOT / "docs" / "systems" / "lean.md", "python -m tests.lean"
FIVE = ("cdfgnn", "sancus-e", "sancus-h", "pscgcn", "digest", "capgnn")
PARTITIONS = ("metis", "random")


def least(runs: pd.DataFrame, graph: str, partition: str) -> tuple[str, float]:
    """Who of the five papers' systems sends the fewest bytes, and MB per epoch. CDFGNN has a vertex-cut of
    its own, whatever the partition."""
    rows = {name: name if name == "cdfgnn" else f"{name}, {partition}" for name in FIVE}
    sent = {name: float(of(runs, graph, row).mb_epoch.mean()) for name, row in rows.items()}
    name = min(sent, key=sent.__getitem__)
    return name, sent[name]


def bytes_table(runs: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | partition | exact | least of the five | `lean`: hidden + weights"
        " | the five / `lean` | hidden alone, the five / `lean` |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            ours, exact = (of(runs, graph, f"{system}, {partition}") for system in ("lean", "vanilla"))
            name, sent = least(runs, graph, partition)
            hidden, other = ours.mb_epoch_hidden.mean(), ours.mb_epoch_other.mean()
            row = name if name == "cdfgnn" else f"{name}, {partition}"
            theirs = of(runs, graph, row).mb_epoch_hidden.mean()
            lines.append(
                f"| {called(graph)} | {partition} | {exact.mb_epoch.mean():.3f} | {sent:.3f} ({name})"
                f" | {hidden:.4f} + {other:.3f} | {sent / (hidden + other):.1f} | {theirs / hidden:.0f} |"
            )
    return "\n".join(lines)


def short_of_a_fifth(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """The cells in which `lean` sends more than a fifth of the least of the five's bytes."""
    cells = [(graph, partition) for graph in dict.fromkeys(runs.graph) for partition in PARTITIONS]
    return [
        (graph, partition)
        for graph, partition in cells
        if of(runs, graph, f"lean, {partition}").mb_epoch.mean() > least(runs, graph, partition)[1] / 5
    ]


def _fifth(runs: pd.DataFrame) -> str:
    short = [f"{called(graph)}, {partition}" for graph, partition in short_of_a_fifth(runs)]
    cells = len(PARTITIONS) * runs.graph.nunique()
    met = f"At most a fifth of the five's least in {cells - len(short)} of {cells} cells"
    return textwrap.fill(f"{met}{'; more: ' if short else ''}{'; '.join(short)}.", 110)


def accuracy_table(runs: pd.DataFrame, more: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | partition | seeds | exact | `lean` | difference, paired"
        " | CPU, of exact's | MB per run: exact | `lean` |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for graph in dict.fromkeys(runs.graph):
        found = more if graph in set(more.graph) else runs
        score = "test_auc_percent" if graph == "tolokers" else "test_acc_percent"
        name = called(graph) + (" (AUC)" if graph == "tolokers" else "")
        for partition in PARTITIONS:
            ours, exact = (of(found, graph, f"{system}, {partition}") for system in ("lean", "vanilla"))
            assert list(ours.index) == list(exact.index), f"{graph}, {partition}: other seeds"
            scores = [said(mean(each[score])) for each in (exact, ours)]
            less = mean(ours[score] - exact[score])
            quiet = (of(runs, graph, f"{system}, {partition}") for system in ("lean", "vanilla"))
            spent = mean(operator.truediv(*(each.cpu_s_all_workers for each in quiet)))
            lines.append(
                f"| {name} | {partition} | {len(ours)} | {' | '.join(scores)} | {said(less, '+.2f')}"
                f" | {spent.mean:.2f} | {exact.mb_run.mean():.1f} | {ours.mb_run.mean():.1f} |"
            )
    return "\n".join(lines)


def tables(root: Path = ROOT) -> str:
    four, eight = kept("lean_bytes", root), kept("lean_bytes_eight", root)
    return "\n\n".join([
        "MB per epoch without what is fetched once, 4 workers, one seed:",
        bytes_table(four),
        _fifth(four),
        "The same with 8 workers:",
        bytes_table(eight),
        _fifth(eight),
        "Test accuracy in %, 200 epochs, 4 workers, ± half a 95 % interval over seeds:",
        accuracy_table(kept("lean_accuracy", root), kept("lean_computers", root)),
    ])  # fmt: skip


def up_to_date(page: str, root: Path = ROOT) -> str:
    """The page with its tables replaced."""
    return with_tables(page, COMMAND, tables(root))


def main() -> int:
    PAGE.write_text(up_to_date(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
