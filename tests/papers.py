"""`python -m tests.papers`: bring the verdicts in docs/papers and README up to date with results/reference.

A page is `# PAPER`, what held, what did not and why, by hand, and the section "Verdicts", which is written
here: how many there are of each. docs/papers/verdicts/PAPER.md is written here as a whole: a row per part of
each published figure, table and claim, and one for all of its parts that lack the same run.
docs/papers/README.md counts them by paper, verdict and cause, and what became of the verdicts of 0d78676;
docs/artefact.md has a row for each entry of which runs are kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from harness.papers.claims import experiment, published, reference, table
from harness.papers.claims.evaluate import COMPARED, CONSTRUCTED, NOT_RUN, NOT_YET, Result
from harness.papers.claims.reference import decided
from harness.papers.claims.verdict import CAUSES, DECIDED, DETERMINISTIC, MISSED, NO_EFFECT, UNKNOWN
from harness.run.runner import Places
from tests.kept import with_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES, COMMAND = ROOT / "docs" / "papers", "python -m tests.papers"
COUNTS = re.compile(rf"(?<=<!-- from results/reference: {COMMAND} -->\n).*?(?=\n<!-- -->)", re.S)


def results(root: Path = ROOT) -> list[Result]:
    """What is kept; no run is read."""
    nothing = root / "results" / "none"
    return decided(None, Places(nothing, nothing, nothing), root / reference.FOLDER)


def verdicts(found: Sequence[Result]) -> str:
    """A row per part, or per verdict on a table's series of cells, of one paper's; below the rows each reason
    once, by the number that a row names it with. Parts of an entry that were not run, for one reason, share a
    row: nothing is known of them but what the paper prints.
    """
    rows = ["| | part | published | here | share | verdict |", "|---|---|---|---|---|---|"]
    reasons: dict[str, int] = {}
    before = series = ""
    for line in _without_runs_together(table.lines(found)):
        entry = published.entry(line.entry)
        name = f"{entry.label}: {entry.title}" + (" (text uncertain)" if entry.uncertain else "")
        elsewhere = line.again not in ("", line.entry)
        again = f"counted in {published.entry(line.again).label}" if elsewhere else ""
        parts = line.verdict.why.split("; ")
        seen = [part for part in (MISSED, DETERMINISTIC) if part in parts]
        why = "; ".join(part for part in parts if part not in seen)
        reason = f"reason {reasons.setdefault(why, len(reasons) + 1)}" if why else ""
        said = "; ".join(filter(None, [*seen, line.verdict.cause, reason, again]))
        cells = [
            "" if name == before else name,
            f"the same, {line.steps}" if line.series and line.series == series else line.says,
            line.published,
            # A cell's interval stands in the experiment's claims.csv.
            re.sub(r" ± [^,]*", "", line.ours) if line.series and line.share else line.ours,
            re.sub(r" \[[^\]]*\]", "", line.share),
            f"**{line.verdict.word}**" + (f" ({said})" if said else ""),
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        before, series = name, line.series
    return "\n".join([*rows, "", *_numbered(reasons)])


def _without_runs_together(lines: Sequence[table.VerdictRow]) -> list[table.VerdictRow]:
    """One row for all of an entry's that were not run for one reason: their number, where the first stood."""
    keys = [(line.entry, line.verdict, line.again) for line in lines]
    numbers = Counter(key for key in keys if key[1].word == NOT_RUN)
    together = []
    for at, (key, line) in enumerate(zip(keys, lines)):
        if numbers[key] < 2:
            together.append(line)
        elif keys.index(key) == at:
            says = f"{numbers[key]} parts"
            together.append(dataclasses.replace(line, says=says, published="", series=""))
    return together


def _numbered(reasons: Collection[str]) -> list[str]:
    if not reasons:
        return []
    listed = [textwrap.fill(f"{number}. {why}", 110) for number, why in enumerate(reasons, 1)]
    return ["Reasons:", "", *listed]


def counted(found: Sequence[Result]) -> list[str]:
    """Counts without the line that says where they are from, which the page says itself."""
    return [line for line in table.counts(found) if not line.startswith("Verdicts kept")]


def filled(found: Sequence[Result]) -> str:
    """The counts as a paragraph."""
    return textwrap.fill(" ".join(counted(found)), 110)


def up_to_date(page: str, paper: str, found: Sequence[Result]) -> str:
    """The page with its counts of verdicts replaced."""
    head, _, _ = page.partition("\n## Verdicts\n")
    link = f"[Every part, with what is published and what came out here](verdicts/{paper}.md)."
    return f"{head}\n## Verdicts\n\n{filled(of_paper(paper, found))}\n\n{link}\n"


def every_part(title: str, paper: str, found: Sequence[Result]) -> str:
    """The page of a paper's verdicts; `title`: that of its other page."""
    name, _, _ = title.removeprefix("# ").partition(":")
    told = f"[What held, what did not and why](../{paper}.md); [how it is decided](../../howto/claims.md)."
    return f"# {name}: every verdict\n\n{told}\n\n{verdicts(of_paper(paper, found))}\n"


def of_paper(paper: str, found: Sequence[Result]) -> list[Result]:
    return [each for each in found if published.entry(each.entry).paper == paper]


def artefact(found: Sequence[Result]) -> str:
    """A row per published figure, table or claim of which runs are kept: what makes them again, how long that
    takes on two cores, and of its parts the first with an interval, else the first."""
    plans = experiment.load(experiment.FOLDER)
    rows = [
        "| published | command, behind `halobench figures` | minutes | expected | parts |",
        "|---|---|---:|---|---:|",
    ]
    for name, parts in itertools.groupby(found, key=lambda each: each.entry):
        entry, made = published.entry(name), [each for each in parts if each.ours]
        if not (entry.paper and made):
            continue
        shown = next((each for each in made if each.ours and each.ours.half), made[0])
        names = dict.fromkeys(each.experiment for each in made)
        minutes = sum(plans[each].sizes["small"].minutes for each in names)
        cells = [
            f"[{entry.paper}](papers/verdicts/{entry.paper}.md), {entry.label}",
            f"`{' '.join(names)} --size small`",
            f"{minutes:g}",
            f"{shown.says}: {table.value(shown.ours)}, {shown.verdict.word}".replace("|", "\\|"),
            str(len(made)),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


WORDS = (*DECIDED, NO_EFFECT, UNKNOWN, CONSTRUCTED, NOT_YET, NOT_RUN)


def by_paper(found: Sequence[Result]) -> str:
    """Parts and cells by paper and verdict, and of what cannot be told or is missed by cause; each
    measurement once."""
    once = [each for each in found if not each.own and not each.again and each.verdict.word != COMPARED]
    papers = list(dict.fromkeys(published.entry(each.entry).paper for each in once))
    words = [word for word in WORDS if any(each.verdict.word == word for each in once)]
    rows = ["| | " + " | ".join(papers) + " | all |", "|---|" + "---:|" * (len(papers) + 1)]
    for word in words:
        of_word = [each for each in once if each.verdict.word == word]
        rows.append(_counted(f"**{word}**", of_word, papers))
        causes = [cause for cause in CAUSES if any(each.verdict.cause == cause for each in of_word)]
        rows += [
            _counted(f"{word}: {cause}", [each for each in of_word if each.verdict.cause == cause], papers)
            for cause in causes
        ]
    return "\n".join(rows)


def _counted(name: str, found: Sequence[Result], papers: Sequence[str]) -> str:
    counts = Counter(published.entry(each.entry).paper for each in found)
    return "| " + " | ".join([name, *(str(counts[paper] or "") for paper in papers), str(len(found))]) + " |"


THEN = "at 0d78676"
MOVED = "What became of the verdicts of revision 0d78676 ([part by part](verdicts/moved.csv)):"
GONE = "no part of its own"


def moved(found: Sequence[Result], path: Path = PAGES / "verdicts" / "moved.csv") -> pd.DataFrame:
    """The verdicts of 0d78676 with what became of them: a row per part of a published entry, by the name that
    it had then, and under "part now" another name where it has one.
    """
    then = pd.read_csv(path, keep_default_na=False)
    now = {(each.entry, each.says): each.verdict for each in found if each.verdict.word != COMPARED}
    names = then["part now"].where(then["part now"] != "", then["part"])
    verdicts = [now.get(key) for key in zip(then.entry, names)]
    return then.assign(
        now=[each.word if each else GONE for each in verdicts],
        cause=[each.cause if each else "" for each in verdicts],
    )


def became(parts: pd.DataFrame) -> str:
    """How many parts of each verdict of 0d78676 have which verdict now."""
    counts = pd.crosstab(parts[THEN], parts["now"])
    words = [word for word in (*WORDS, GONE) if word in counts]
    rows = ["| " + " | ".join([f"{THEN} \\ now", *words, "all"]) + " |", "|---|" + "---:|" * (len(words) + 1)]
    for word, each in counts.loc[[word for word in WORDS if word in counts.index]].iterrows():
        cells = [str(each[now] or "") for now in words]
        rows.append("| " + " | ".join([f"**{word}**", *cells, str(each.sum())]) + " |")
    return "\n".join(rows)


def index(page: str, found: Sequence[Result], parts: pd.DataFrame) -> str:
    """docs/papers/README.md with its tables replaced."""
    return with_tables(page, COMMAND, f"{by_paper(found)}\n\n{MOVED}\n\n{became(parts)}")


def outcomes(found: Sequence[Result]) -> str:
    """A line per kind of thing that was judged: how many there are, what runs said, what has no run; each
    measurement once."""
    once = [each for each in found if not each.again and each.verdict.word != COMPARED]
    kinds = {
        "statements": [each for each in once if not each.own and not each.series],
        "cells of tables": [each for each in once if not each.own and each.series],
        "findings of this project's own": [each for each in once if each.own],
    }
    lines = []
    for kind, results in kinds.items():
        counts = Counter(each.verdict.word for each in results)
        without = {word: counts.pop(word) for word in (NOT_RUN, NOT_YET, CONSTRUCTED) if word in counts}
        judged, lacks = (
            ", ".join(f"{number} {word}" for word, number in sorted(each.items(), key=lambda it: -it[1]))
            for each in (counts, without)
        )
        line = f"- **{len(results)} {kind}**; {sum(counts.values())} judged: {judged}. The others: {lacks}."
        lines.append(textwrap.fill(line, 110, subsequent_indent="  "))
    return "\n".join(lines)


def readme(text: str, found: Sequence[Result]) -> str:
    """README with its counts replaced."""
    return COUNTS.sub(lambda _: outcomes(found), text)


def main(root: Path = ROOT) -> int:
    found = results(root)
    path = root / "docs" / "papers" / "verdicts" / "moved.csv"
    parts = moved(found, path)
    parts.to_csv(path, index=False)
    for path in sorted((root / "docs" / "papers").glob("*.md")):
        page = path.read_text()
        known = path.stem in {entry.paper for entry in published.experiments().values()}
        made = up_to_date(page, path.stem, found) if known else index(page, found, parts)
        path.write_text(made)
        if known:
            told = every_part(page.splitlines()[0], path.stem, found)
            (path.parent / "verdicts" / path.name).write_text(told)
    path = root / "docs" / "artefact.md"
    path.write_text(with_tables(path.read_text(), COMMAND, artefact(found)))
    path = root / "README.md"
    path.write_text(readme(path.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
