"""`python -m tests.batches`: bring the table of docs/systems/distdgl.md up to date with results/reference.

A row is a graph, its split and a system; its runs are those of `batches_few` and `batches_many`.
"""

import pandas as pd

from tests.kept import ROOT, called, kept, mean, of, once, said, with_tables

PAGE, COMMAND = ROOT / "docs" / "systems" / "distdgl.md", "python -m tests.batches"
EXPERIMENTS = ("batches_few", "batches_many")


def table(runs: pd.DataFrame) -> str:
    lines = [
        "| graph, training vertices | system | steps per epoch | test acc % | rows pulled | MB layer 0"
        " | MB hidden | MB weights | CPU s per epoch |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for graph in dict.fromkeys(runs.graph):
        for row in dict.fromkeys(runs.row):
            found = of(runs, graph, row)
            score = said(mean(found.test_acc_percent))
            sent = " | ".join(
                f"{found[f'mb_epoch_{part}'].mean():.3f}" for part in ("layer_0", "hidden", "other")
            )
            pulled = f"{found.rows_asked.mean():.0f}" if found.rows_asked.notna().all() else ""
            lines.append(
                f"| {called(graph)} | `{row}` | {found.steps.mean():g} | {score} | {pulled} | {sent}"
                f" | {found.cpu_s_all_workers.mean():.3f} |"
            )
    return "\n".join(lines)


def up_to_date(page: str) -> str:
    """The page with its table replaced."""
    runs = pd.concat([kept(name) for name in EXPERIMENTS])
    return with_tables(page, COMMAND, once(table(runs)))


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
