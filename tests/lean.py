"""`python -m tests.lean`: bring the tables of docs/systems/lean.md up to date with results/reference.

A cell is a graph, its split and a partition. Bytes are of `lean_bytes` (4 workers) and `lean_bytes_eight`,
work of `lean_work`, accuracy of `lean_accuracy`, and of `lean_computers` where it has more seeds. The parts
one after the other are of `lean_ablation`; CPU seconds of a quiet machine are what `halobench bench --only
lean` measures.
"""

import re
import textwrap

import pandas as pd

from harness.papers.claims import reference
from tests.kept import ROOT, called, kept, mean, of, once, said, with_tables

PAGE, COMMAND = ROOT / "docs" / "systems" / "lean.md", "python -m tests.lean"
FIVE = ("cdfgnn", "sancus-e", "sancus-h", "pscgcn", "digest", "capgnn")
PARTITIONS = ("metis", "random")


def row_of(name: str, partition: str) -> str:
    """The row of a system on a partition. CDFGNN has a vertex-cut of its own, whatever the partition."""
    return name if name == "cdfgnn" else f"{name}, {partition}"


def sent_of(runs: pd.DataFrame) -> pd.Series:
    """MB per epoch by graph and row."""
    return runs.groupby(["graph", "row"]).mb_epoch.mean()


def least(sent: pd.Series, graph: str, partition: str) -> tuple[str, float]:
    """Who of the five papers' systems sends the fewest bytes, and MB per epoch."""
    found = {name: float(sent[graph, row_of(name, partition)]) for name in FIVE}
    name = min(found, key=found.__getitem__)
    return name, found[name]


def bytes_table(runs: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | partition | exact | least of the five | `lean`: hidden + weights"
        " | the five / `lean` | hidden alone, the five / `lean` | fetched once: exact | the five | `lean` |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    means = sent_of(runs)
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            ours, exact = (of(runs, graph, f"{system}, {partition}") for system in ("lean", "vanilla"))
            name, sent = least(means, graph, partition)
            hidden, other = ours.mb_epoch_hidden.mean(), ours.mb_epoch_other.mean()
            five = of(runs, graph, row_of(name, partition))
            lines.append(
                f"| {called(graph)} | {partition} | {exact.mb_epoch.mean():.3f} | {sent:.3f} ({name})"
                f" | {hidden:.4f} + {other:.3f} | {sent / (hidden + other):.1f}"
                f" | {five.mb_epoch_hidden.mean() / hidden:.1f}"
                f" | {' | '.join(f'{fetched_once(each):.2f}' for each in (exact, five, ours))} |"
            )
    return "\n".join(lines)


def fetched_once(runs: pd.DataFrame) -> float:
    """MB that a run's first epoch sends beyond an epoch of the others: layer 0's features, and whatever else
    its first epoch has, as rows that no cache holds yet."""
    epochs = int(re.search(r"epochs=(\d+)", runs.asked.iloc[0])[1])
    return max(0.0, float(runs.mb_run.mean() - epochs * runs.mb_epoch.mean()))


def ratios(runs: pd.DataFrame) -> dict[tuple[str, str], float]:
    """By graph and partition the least of the five's bytes over `lean`'s."""
    sent = sent_of(runs)
    return {
        (graph, partition): least(sent, graph, partition)[1] / sent[graph, f"lean, {partition}"]
        for graph in dict.fromkeys(runs.graph)
        for partition in PARTITIONS
    }


def short_of_a_fifth(runs: pd.DataFrame) -> list[tuple[str, str]]:
    """The cells in which `lean` sends more than a fifth of the least of the five's bytes."""
    return [cell for cell, ratio in ratios(runs).items() if ratio < 5]


def _fifth(runs: pd.DataFrame, workers: int) -> str:
    found = ratios(runs)
    short = [f"{called(graph)}, {partition}" for (graph, partition), ratio in found.items() if ratio < 5]
    said = (
        f"With {workers} workers the least of the five sends {min(found.values()):.1f} to"
        f" {max(found.values()):.1f} times what `lean` does, and at least five times in"
        f" {len(found) - len(short)} of {len(found)} cells; less in: {'; '.join(short)}."
    )
    return textwrap.fill(said, 110)


SHARES = {"exact": "exact", "needed rows": "needed rows", "cover": "the least cover, on the narrow side",
          "lean": "`lean`: and in 8 bits", "lean, all rows": "`lean` with `rows=all`"}  # fmt: skip


def shares_table(runs: pd.DataFrame, taken: dict[str, float]) -> str:
    """Hidden MB per epoch by what is left out, one thing after the other.

    taken   |R_1| / V by graph
    """
    lines = [
        f"| graph, training vertices | \\|R_1\\| / V | partition | {' | '.join(SHARES.values())} |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            hidden = [of(runs, graph, f"{row}, {partition}").mb_epoch_hidden.mean() for row in SHARES]
            told = " | ".join(f"{each:.4f}" for each in hidden)
            lines.append(f"| {called(graph)} | {taken[called(graph)]:.3f} | {partition} | {told} |")
    return "\n".join(lines)


def shares_taken() -> dict[str, float]:
    """|R_1| / V by graph, of what `lean_shares` decides."""
    claims = pd.read_csv(ROOT / reference.FOLDER / "lean_shares" / "claims.csv")
    return {part.partition(":")[0]: mean for part, mean in zip(claims.part, claims["mean"])}


NEEDED, FOUR = "vanilla, needed rows", "lean at 4 bits, scale per row"


def coded_table(runs: pd.DataFrame) -> str:
    """MB per epoch where the weights of all are coded as `lean`'s are."""
    lines = [
        "| graph, training vertices | partition | `lean` | at 4 bits, scale per row | least of the five"
        " | the five / `lean` | exact, needed rows | exact / `lean` |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    means = sent_of(runs)
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            ours, four, exact = (
                of(runs, graph, f"{row}, {partition}").mb_epoch.mean() for row in ("lean", FOUR, NEEDED)
            )
            name, sent = least(means, graph, partition)
            lines.append(
                f"| {called(graph)} | {partition} | {ours:.3f} | {four:.3f} | {sent:.3f} ({name})"
                f" | {sent / ours:.1f} | {exact:.3f} | {exact / ours:.1f} |"
            )
    return "\n".join(lines)


def _four_bits(runs: pd.DataFrame) -> str:
    sent, found = sent_of(runs), {}
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            eight, four = (sent[graph, f"{row}, {partition}"] for row in ("lean", FOUR))
            found[f"{called(graph)}, {partition}"] = four / eight
    more = "; ".join(cell for cell, ratio in found.items() if ratio > 1.005)
    said = (
        f"At 4 bits with a scale per row `lean` sends {min(found.values()):.2f} to"
        f" {max(found.values()):.2f} times what it does at 8 bits with a scale per column. It saves 2 % or"
        f" more in {sum(ratio <= 0.98 for ratio in found.values())} of {len(found)} cells, and sends more in:"
        f" {more}."
    )
    return textwrap.fill(said, 110)


BUDGETS = {"lean": "0", "lean, half as much work": "0.5", "lean, as much work": "1"}
RIVALS = ("supergnn", "replicate", "replicate, all rows")


def work_table(runs: pd.DataFrame) -> str:
    """Hidden MB and GFLOP per epoch of `lean` by its budget, beside who sends rows or computes them."""
    headings = [*RIVALS, *(f"`lean`, {budget}" for budget in BUDGETS.values())]
    lines = [f"| graph, training vertices | partition | {' | '.join(headings)} |", f"|---|---|{'---:|' * 6}"]
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            found = [of(runs, graph, f"{row}, {partition}").iloc[0] for row in (*RIVALS, *BUDGETS)]
            told = " | ".join(f"{each.mb_epoch_hidden:.4f}, {each.gflop_epoch:.3f}" for each in found)
            lines.append(f"| {called(graph)} | {partition} | {told} |")
    return "\n".join(lines)


def ahead_at_equal_work(runs: pd.DataFrame) -> list[str]:
    """The cells and budgets in which one of the rivals that computes no more than `lean` sends less."""
    ahead = []
    for graph in dict.fromkeys(runs.graph):
        for partition in PARTITIONS:
            rivals = [of(runs, graph, f"{row}, {partition}").iloc[0] for row in RIVALS]
            for row, budget in BUDGETS.items():
                ours = of(runs, graph, f"{row}, {partition}").iloc[0]
                able = [each for each in rivals if each.gflop_epoch <= ours.gflop_epoch]
                if any(each.mb_epoch_hidden < ours.mb_epoch_hidden for each in able):
                    ahead.append(f"{called(graph)}, {partition}, at {budget}")
    return ahead


def _equal_work(runs: pd.DataFrame) -> str:
    cells = len(set(runs.graph)) * len(PARTITIONS)
    none = [int((runs[runs.row.str.startswith(f"{row}, ")].mb_epoch_hidden == 0).sum())
            for row in ("lean, half as much work", "lean, as much work")]  # fmt: skip
    ahead = ahead_at_equal_work(runs)
    said = (
        f"In {none[0]} of {cells} cells `lean` sends no hidden message at a budget of 0.5, in"
        f" {none[1]} at 1. "
        + (
            f"Of those that compute no more than `lean` one sends less in: {'; '.join(ahead)}."
            if ahead
            else "Nobody who computes no more than `lean` sends less, in any cell at any budget."
        )
    )
    return textwrap.fill(said, 110)


def accuracy_table(runs: pd.DataFrame, more: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | partition | seeds | exact | `lean` | difference, paired"
        " | MB per run: exact | `lean` |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
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
            lines.append(
                f"| {name} | {partition} | {len(ours)} | {' | '.join(scores)} | {said(less, '+.2f')}"
                f" | {exact.mb_run.mean():.1f} | {ours.mb_run.mean():.1f} |"
            )
    return "\n".join(lines)


def ablation_table(runs: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | row | test acc % | MB per epoch: hidden + weights | MB per run"
        " | CPU, of exact's |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for graph in dict.fromkeys(runs.graph):
        exact = of(runs, graph, "vanilla")
        for row in dict.fromkeys(runs.row):
            found = of(runs, graph, row)
            spent = mean(found.cpu_s_all_workers / exact.cpu_s_all_workers).mean
            lines.append(
                f"| {called(graph)} | {row} | {said(mean(found.test_acc_percent))}"
                f" | {found.mb_epoch_hidden.mean():.4f} + {found.mb_epoch_other.mean():.3f}"
                f" | {found.mb_run.mean():.1f} | {spent:.2f} |"
            )
    return "\n".join(lines)


def tables() -> str:
    four, eight = kept("lean_bytes"), kept("lean_bytes_eight")
    return "\n\n".join([
        "MB per epoch without what is fetched once, 4 workers, one seed:",
        bytes_table(four),
        _fifth(four, 4),
        _fifth(eight, 8),
        "The weights of all coded (`combine=quantised`), 4 workers, one seed: MB per epoch, and exact"
        "\ntraining with the rows that the loss needs beside:",
        coded_table(kept("lean_bytes_coded")),
        _four_bits(kept("lean_bytes_coded")),
        "What each part leaves out: hidden MB per epoch, 4 workers, one seed, and the share of all rows that"
        "\nthe last layer takes:",
        shares_table(kept("lean_shares"), shares_taken()),
        "Hidden MB and, behind the comma, GFLOP of an epoch of all 4 workers, one seed: `lean` at budgets of"
        "\n`extra_work`, `supergnn` at 8 bits, `replicate` as it chooses and with all rows computed:",
        work_table(kept("lean_work")),
        _equal_work(kept("lean_work")),
        "Test accuracy in %, 200 epochs, 4 workers, ± half a 95 % interval over seeds:",
        accuracy_table(kept("lean_accuracy"), kept("lean_computers")),
        "One part after the other, random parts (`cdfgnn`: its own cut), 3 seeds, 200 epochs, the score at"
        "\nthe best validation; CPU seconds of an epoch with other work beside:",
        ablation_table(kept("lean_ablation")),
    ])  # fmt: skip


def up_to_date(page: str) -> str:
    """The page with its tables replaced."""
    return with_tables(page, COMMAND, once(tables()))


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
