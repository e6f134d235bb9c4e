"""`python -m tests.size [REVISION]`: lines of Python by package now, and at a revision of before.

Lines are counted as git has them, blank ones and comments too; of docs/ it is words: what stands between
spaces and has a letter or a digit, so not the bars of tables. The core does without the packages of OPTIONAL.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "0d78676"
OPTIONAL = ("papers", "model", "dev", "submissions")
# Where packages of before went.
MOVED = {
    "check": "base", "graph": "data", "partition": "data", "importing": "data", "cluster": "core",
    "trace": "results", "report": "results", "worker": "run", "api": "cli", "page": "cli",
    "claims": "papers", "figures": "papers", "study": "papers",
    "replay": "model", "plan": "model", "calibrate": "model",
    "bench": "dev", "conformance": "dev", "history": "dev", "fidelity": "dev",
}  # fmt: skip


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def package(path: str) -> str:
    """Where a file of Python is counted: a package of harness/, systems/ or tests/."""
    parts = path.removesuffix(".py").split("/")
    if parts[0] != "harness" or parts[1].startswith("__"):
        return parts[0]
    return f"harness/{MOVED.get(parts[1], parts[1])}"


def _counted(pattern: str, revision: str) -> Iterator[tuple[str, int]]:
    """Path and lines of each tracked file that matches the pattern and is not empty."""
    tree = [revision] if revision else []
    listed = _git("grep", "-c", "-e", "", *tree, "--", pattern)
    for line in listed.splitlines():
        path, count = line.removeprefix(f"{revision}:" if revision else "").rsplit(":", 1)
        yield path, int(count)


def lines(revision: str = "") -> Counter[str]:
    """Lines by package, of a revision or of the working tree."""
    counts: Counter[str] = Counter()
    for top in ("harness", "systems", "tests"):
        for path, count in _counted(f"{top}/*.py", revision):
            counts[package(path)] += count
    return counts


def words(revision: str = "") -> int:
    """Words of docs/ and README."""
    pages = [
        path for path, _ in _counted("*.md", revision) if path.startswith("docs/") or path == "README.md"
    ]
    shown = (_git("show", f"{revision}:{path}") if revision else (ROOT / path).read_text() for path in pages)
    return sum(any(map(str.isalnum, word)) for text in shown for word in text.split())


def totals(counts: Counter[str]) -> dict[str, int]:
    """The sums that are asked about."""
    sums = {name: counts[f"harness/{name}"] for name in OPTIONAL}
    product = sum(count for name, count in counts.items() if name != "tests")
    return {
        "product": product,
        f"core: product without the next {len(OPTIONAL)}": product - sum(sums.values()),
        **sums,
        "tests": counts["tests"],
    }


def table(before: str = BEFORE) -> pd.DataFrame:
    """A row per package, then the sums and the words of the docs; columns: the revision and now."""
    then, now = lines(before), lines()
    rows = [(name, then[name], now[name]) for name in sorted({*then, *now} - {"tests"})]
    old, new = totals(then), totals(now)
    rows += [(name, old[name], new[name]) for name in new]
    rows.append(("words of docs/ and README", words(before), words()))
    return pd.DataFrame(rows, columns=["lines of", before, "now"])


if __name__ == "__main__":
    print(table(*sys.argv[1:2]).to_string(index=False))
