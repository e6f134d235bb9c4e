"""`python -m tests.papers`: bring the verdicts in docs/papers and README up to date with results/reference.

docs/papers/PAPER.md says by hand what held, what did not and why. docs/papers/verdicts/PAPER.md is written
here as a whole: a row per part of each published figure, table and claim, one per series of a table's cells,
and one for all of an entry's parts that lack the same run.
docs/papers/README.md counts them by paper, verdict and cause, and what became of the verdicts of 0d78676;
docs/artefact.md has a row for each entry of which runs are kept. Predicted beside printed seconds are drawn
into docs/figures. Kept pictures of claims are drawn again where they say something else than the verdicts;
with --pictures all are.
"""

import itertools
import re
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import matplotlib
import pandas as pd
from PIL import Image

from harness.papers.claims import picture, published, reference, table
from harness.papers.claims.__main__ import draw_seconds
from harness.papers.claims.evaluate import COMPARED, CONSTRUCTED, NOT_RUN, NOT_YET, Result
from harness.papers.claims.reference import decided
from harness.papers.claims.verdict import CAUSES, DECIDED, DETERMINISTIC, MISSED, NO_EFFECT, UNKNOWN
from harness.results.report import style
from harness.run.runner import Places
from tests import experiments
from tests.kept import with_tables

ROOT = Path(__file__).resolve().parent.parent
PAGES, COMMAND = ROOT / "docs" / "papers", "python -m tests.papers"
COUNTS = re.compile(rf"(?<=<!-- from results/reference: {COMMAND} -->\n).*?(?=\n<!-- -->)", re.S)


def results(root: Path = ROOT) -> list[Result]:
    """What is kept; no run is read."""
    nothing = root / "results" / "none"
    return decided(None, Places(nothing, nothing, nothing), root / reference.FOLDER)


def verdicts(found: Sequence[Result]) -> str:
    """A row per part, or per series of a table's cells, of one paper's; below the rows each cause with its
    reason once, by the number that a row names it with. Parts of an entry that were not run, for one reason,
    share a row: nothing is known of them but what the paper prints. So do those that stand, with the same
    numbers, at the entry that counts them.
    """
    rows = [["", "part", "published", "here", "share", "verdict"]]
    reasons: dict[str, int] = {}
    before = ""
    parts = _parts(found)
    alike = [_alike(part, parts) for part in parts]
    for at, (part, shared) in enumerate(zip(parts, alike)):
        if shared and alike.index(shared) < at:
            continue
        first, number = part[0], alike.count(shared) if shared else 1
        entry = published.entry(first.entry)
        name = f"{entry.label}: {entry.title}" + (" (text uncertain)" if entry.uncertain else "")
        says = first.claim.series.replace("{}", _steps(part)) if first.claim.series else first.says
        cells = ["" if name == before else name, says if number == 1 else f"{number} parts"]
        as_there = shared and shared[1].startswith("as at")
        cells += ["", "", ""] if number > 1 or as_there else _numbers(part)
        cells.append(shared[1] if as_there else _judged(part, reasons))
        rows.append([cell.replace("|", "\\|") for cell in cells])
        before = name
    # A column that no row fills is left out.
    columns = [column for column in zip(*rows) if any(column[1:])]
    lines = ["| " + " | ".join(row) + " |" for row in zip(*columns)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:], "", *_numbered(reasons)])


def _parts(found: Sequence[Result]) -> list[list[Result]]:
    """Each part, and the cells of each series together, where the first stands; none is only compared."""
    parts: dict[tuple, list[Result]] = {}
    for at, each in enumerate(found):
        if each.verdict.word != COMPARED:
            key = (each.entry, each.experiment, each.claim.series or at, each.size)
            parts.setdefault(key, []).append(each)
    return list(parts.values())


def _alike(part: Sequence[Result], parts: Sequence[Sequence[Result]]) -> tuple[str, str] | None:
    """What is the same of all parts that share a row: their entry, and what is said of them; else None."""
    first, again = part[0], _elsewhere(part[0])
    said = {(each.verdict, _elsewhere(each)) for each in part}
    if len(said) == 1 and first.verdict.word == NOT_RUN:
        return first.entry, f"{first.verdict.why} {again}"
    there = [_shown(each, first.again) for each in parts if each[0].entry == first.again]
    return (first.entry, f"as at {again}") if again and _shown(part, first.again) in there else None


def _shown(part: Sequence[Result], entry: str) -> tuple:
    return tuple((entry, each.says, each.claim.published, str(each.ours), each.verdict) for each in part)


def _elsewhere(each: Result) -> str:
    """Of what another entry counts: which."""
    return published.entry(each.again).label if each.again not in ("", each.entry) else ""


def _numbers(part: Sequence[Result]) -> list[str]:
    """Published values, ours and shares. The interval of a cell with a share stands in the claims.csv of its
    experiment."""
    shares = [re.sub(r" \[.*", "", table.share(each.verdict)) for each in part]
    ours = [table.value(each.ours) for each in part]
    if part[0].claim.series:
        ours = [value.partition(" ")[0] if share else value for value, share in zip(ours, shares)]
    return [
        ", ".join(filter(None, (table.said(each.claim.published) for each in part))),
        ", ".join(filter(None, ours)),
        ", ".join(share or "-" for share in shares) if any(shares) else "",
    ]


def _judged(part: Sequence[Result], reasons: dict[str, int]) -> str:
    """The verdict, or each with its steps, with the number of its reason, which `reasons` gets."""
    cells: dict[str, list[Result]] = {}
    for each in part:
        told = each.verdict.why.split("; ")
        why = "; ".join(word for word in told if word not in (MISSED, DETERMINISTIC))
        reason = ": ".join(filter(None, [each.verdict.cause, why]))
        again = _elsewhere(each)
        behind = [
            "missed" if MISSED in told else "",
            DETERMINISTIC if DETERMINISTIC in told else "",
            str(reasons.setdefault(reason, len(reasons) + 1)) if reason else "",
            f"counted in {again}" if again else "",
        ]
        said = ", ".join(filter(None, behind))
        cells.setdefault(f"**{each.verdict.word}**" + (f" ({said})" if said else ""), []).append(each)
    if len(cells) == 1:
        return next(iter(cells))
    return "; ".join(f"{_steps(same)} {words}" for words, same in cells.items())


def _steps(part: Sequence[Result]) -> str:
    """The steps of a series; "x2 to x8" for seven that follow each other."""
    steps = [each.claim.step for each in part]
    start = steps[0][1:]
    follow = start.isdigit() and steps == [f"x{int(start) + at}" for at in range(len(steps))]
    return f"{steps[0]} to {steps[-1]}" if follow and len(steps) > 2 else ", ".join(steps)


def _numbered(reasons: Collection[str]) -> list[str]:
    if not reasons:
        return []
    listed = [textwrap.fill(f"{number}. {why}", 110) for number, why in enumerate(reasons, 1)]
    return ["Reasons:", "", *listed]


def every_part(title: str, paper: str, found: Sequence[Result]) -> str:
    """The page of a paper's verdicts; `title`: that of its other page."""
    name, _, _ = title.removeprefix("# ").partition(":")
    how = "[how it is decided, and read](../../howto/claims.md)"
    told = f"[What held, what did not and why](../{paper}.md); {how}."
    return f"# {name}: every verdict\n\n{told}\n\n{verdicts(of_paper(paper, found))}\n"


def of_paper(paper: str, found: Sequence[Result]) -> list[Result]:
    return [each for each in found if published.entry(each.entry).paper == paper]


def artefact(found: Sequence[Result]) -> str:
    """A row per published figure, table or claim of which runs are kept, but for what another counts: what
    makes them again, how long that takes on two cores, and of its parts the first with an interval, else the
    first."""
    plans = experiments.all_of_them()
    rows = [
        "| published | command, behind `halobench figures --size small` | minutes | expected | parts |",
        "|---|---|---:|---|---:|",
    ]
    for name, parts in itertools.groupby(found, key=lambda each: each.entry):
        entry, made = published.entry(name), [each for each in parts if each.ours and not _elsewhere(each)]
        if not (entry.paper and made):
            continue
        shown = next((each for each in made if each.ours and each.ours.half), made[0])
        names = dict.fromkeys(each.experiment for each in made)
        minutes = sum(plans[each].sizes["small"].minutes for each in names)
        cells = [
            f"[{entry.paper}](papers/verdicts/{entry.paper}.md), {entry.label}",
            f"`{' '.join(names)}`",
            f"{minutes:g}",
            f"{shown.says}: {table.value(shown.ours)}, {shown.verdict.word}".replace("|", "\\|"),
            str(len(made)),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    hours = sum(plan.sizes["small"].minutes for plan in plans.values() if "small" in plan.sizes) / 60
    return "\n".join([*rows, f"| all {len(plans)} experiments, findings too | | {hours:.0f} hours | | |"])


WORDS = (*DECIDED, NO_EFFECT, UNKNOWN, CONSTRUCTED, NOT_YET, NOT_RUN)


def by_paper(found: Sequence[Result]) -> str:
    """Parts and cells by paper, verdict and cause, and how many of these are misses that are not the paper's
    doing; each measurement once."""
    once = [each for each in found if not each.own and not each.again and each.verdict.word != COMPARED]
    papers = list(dict.fromkeys(published.entry(each.entry).paper for each in once))
    words = [word for word in WORDS if any(each.verdict.word == word for each in once)]
    rows = ["| | " + " | ".join(papers) + " | all |", "|---|" + "---:|" * (len(papers) + 1)]
    for word in words:
        of_word = [each for each in once if each.verdict.word == word]
        rows.append(_counted(f"**{word}**", of_word, papers))
        for cause in CAUSES:
            of_cause = [each for each in of_word if each.verdict.cause == cause]
            missed = [each for each in of_cause if MISSED in each.verdict.why.split("; ")]
            rows += [_counted(f"{word}: {cause}", of_cause, papers)] if of_cause else []
            rows += [_counted(f"{word}: {cause}, missed", missed, papers)] if missed else []
    return "\n".join(rows)


def _counted(name: str, found: Sequence[Result], papers: Sequence[str]) -> str:
    counts = Counter(published.entry(each.entry).paper for each in found)
    return "| " + " | ".join([name, *(str(counts[paper] or "") for paper in papers), str(len(found))]) + " |"


THEN = "at 0d78676"
ENTRIES = "At 0d78676, without the nine abstracts, there were 92: 34 decided whole, 34 in part, 24 not."
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
    decided_now = f"{table.counts(found)[0]} {ENTRIES}"
    tables = (by_paper(found), textwrap.fill(decided_now, 110), MOVED, became(parts))
    return with_tables(page, COMMAND, "\n\n".join(tables))


def outcomes(found: Sequence[Result]) -> str:
    """A line per kind of thing that was judged: how many there are, what runs said, what has no run; each
    measurement once."""
    once = [each for each in found if not each.again and each.verdict.word != COMPARED]
    papers = table.apart([each for each in once if not each.own])
    kinds = {f"parts of {of}": parts for of, parts in papers.items()}
    kinds["findings of this project's own"] = [each for each in once if each.own]
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


def pictures(found: Sequence[Result], root: Path = ROOT) -> dict[Path, list[Result]]:
    """The kept pictures of claims, each with the kept results of its experiment."""
    kept: dict[Path, list[Result]] = {}
    for each in found:
        path = root / reference.FOLDER / each.experiment / f"{each.experiment}-claims.png"
        if each.size.endswith("reference") and path.is_file():
            kept.setdefault(path, []).append(each)
    return kept


def description(path: Path) -> str | None:
    """What a picture says that it shows."""
    with Image.open(path) as read:
        return read.info.get(reference.DESCRIPTION)


def redraw(path: Path, drawn: Sequence[Result]) -> None:
    plan = experiments.all_of_them()[drawn[0].experiment]
    graphs = plan.sizes[drawn[0].size.partition(",")[0]].graphs
    with matplotlib.rc_context(style.STYLE), tempfile.TemporaryDirectory() as folder:
        figure = picture.draw(plan.title, drawn, graphs)
        assert figure is not None
        new = style.save(figure, Path(folder) / path.name, described=picture.described(drawn))
        reference.write_small(new, path)


def main(root: Path = ROOT, every_picture: bool = False) -> int:
    found = results(root)
    for path, drawn in pictures(found, root).items():
        if every_picture or description(path) != picture.described(drawn):
            redraw(path, drawn)
    path = root / "docs" / "papers" / "verdicts" / "moved.csv"
    parts = moved(found, path)
    parts.to_csv(path, index=False)
    for path in sorted((root / "docs" / "papers").glob("*.md")):
        page = path.read_text()
        if path.stem in {entry.paper for entry in published.experiments().values()}:
            told = every_part(page.splitlines()[0], path.stem, found)
            (path.parent / "verdicts" / path.name).write_text(told)
        else:
            path.write_text(index(page, found, parts))
    draw_seconds(found, root / "docs" / "figures")
    path = root / "docs" / "artefact.md"
    path.write_text(with_tables(path.read_text(), COMMAND, artefact(found)))
    path = root / "README.md"
    path.write_text(readme(path.read_text(), found))
    return 0


if __name__ == "__main__":
    sys.exit(main(every_picture="--pictures" in sys.argv[1:]))
