"""`python -m tests.sets`: bring the table of the real data sets in docs/data.md up to date."""

import textwrap

from harness.data.real_set import RealSet
from harness.data.sets import SETS
from harness.data.twin_specs import SPECS
from tests.kept import ROOT, with_tables

PAGE, COMMAND = ROOT / "docs" / "data.md", "python -m tests.sets"


def _large(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _files(known: RealSet) -> str:
    """As `Cora/raw/` and the names of its files."""
    folders = sorted({file.rpartition("/")[0] for file in known.files})
    return "; ".join(
        f"`{'/'.join(filter(None, (known.folders[0], folder)))}/` "
        + ", ".join(
            f"`{file.rpartition('/')[2]}`" for file in known.files if file.rpartition("/")[0] == folder
        )
        for folder in folders
    )


def table() -> str:
    """A row per data set, then what to cite of each."""
    rows = [
        "| dataset | files under `data_dir` | vertices | directed edges | features | classes | in memory |"
        " raw files | own split | twin | licence | from |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|---|---|---|",
    ]
    for name, known in SETS.items():
        by = f" (by torch_geometric's `{known.library}`)" if known.library != "ogb" else " (by ogb)"
        cells = [
            name,
            _files(known),
            *(f"{count:,}" for count in (known.vertices, known.edges, known.features, known.classes)),
            _large(4 * (known.vertices * known.features + known.edges)),
            _large(known.size) if known.size else "",
            "yes" if known.own_split else "no",
            "yes" if name in SPECS else "no",
            known.licence,
            known.url or known.origin + (by if known.library else ""),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    cited: dict[str, list[str]] = {}
    for name, known in SETS.items():
        cited.setdefault(known.cite, []).append(name)
    return "\n".join(
        [*rows, "", "To cite:", "", *(_item(f"{', '.join(of)}: {what}") for what, of in cited.items())]
    )


def _item(text: str) -> str:
    return textwrap.fill(f"* {text}", 110, subsequent_indent="  ", break_long_words=False)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(), COMMAND, table()))
