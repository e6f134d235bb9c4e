"""halobench advise dataset=NAME workers=N cluster=NAME ...: which system for this graph on this cluster.

Every system is planned; the fastest by their modelled epochs, and exact training beside them, are trained for
a few epochs on this machine. The winner has the least modelled time to 99 % of exact training's best
validation score, and who does not reach that is out.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.base.terminal import Terminal, counted, read_as_far_as_wanted
from harness.check import InputError
from harness.page.layout import check_place, write
from harness.plan import page
from harness.plan.candidate import HEADINGS, Candidate
from harness.plan.plan import plan
from harness.plan.words import Given, parse
from harness.run import runner
from harness.run.runner import Places
from harness.trace.reader import Trace
from harness.trace.summary import leading_score

TRAINED = 3  # systems that are trained, beside exact training
EPOCHS = 60  # where `epochs` is not given
SHARE = 0.99  # of exact training's best validation score
DESCRIPTION = """\
Which system for a graph on a cluster: plans all of them, trains the three that are fastest by plan beside
exact training, and names the one with the least modelled time to 99 % of exact training's best validation
score.

words:
  dataset=NAME workers=N and any key of halobench run but system; epochs=N of the training (default 60)
  cluster=NAME, cluster.KEY=VALUE, per_host=N, sample=SCALE   as halobench plan has them
"""


def main(arguments: Sequence[str] | None = None, program: str = "python -m harness.plan.advise") -> int:
    """Exit code 0, or 2 with one sentence where what was given cannot be used."""
    parser = argparse.ArgumentParser(
        prog=program, description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="+", metavar="KEY=VALUE")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the same as a page of one file")
    options = parser.parse_intermixed_args(list(sys.argv[1:] if arguments is None else arguments))
    try:
        with read_as_far_as_wanted():
            console = Terminal()
            wide = console if console.is_terminal else Terminal(width=200)
            _advise(options.words, wide, options.html)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _advise(words: Sequence[str], console: Terminal, html: Path | None) -> None:
    """Print the advice, and write it as a page where one is wanted."""
    if html is not None:
        check_place("html", html)
    if any(word.startswith("system=") for word in words):
        raise InputError("system= is what is asked for: leave it out, or plan that one with halobench plan")
    rest = list(words)
    if not any(word.startswith("epochs=") for word in rest):
        rest.append(f"epochs={EPOCHS}")
    found = candidates(rest)
    exact = next((each for each in found if each.plan and each.plan.run.system.role == "reference"), None)
    if exact is None or exact.plan is None or not exact.plan.seconds:
        raise InputError(
            "exact training cannot be planned here, and systems are held to its validation score"
        )
    goal = SHARE * train(exact, rest, None)
    train(exact, rest, goal)
    for each in chosen(found):
        train(each, rest, goal)
        if each.epochs is None:
            each.why = f"stays at {each.best:.4f}, below {goal:.4f}"
    rows = [_row(each, exact) for each in found]
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(HEADINGS):
        words_there = number in (0, len(HEADINGS) - 1)
        shown.add_column(heading, justify="left" if words_there else "right", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    console.print(shown)
    said = verdict(found, exact, goal)
    for line in said:
        console.print(line, highlight=False, soft_wrap=True)
    if html is not None:
        command = shlex.join(["halobench", "advise", *words, "--html", str(html)])
        write("html", html, page.made(found, exact, rows, said, command))
        console.print(f"{html}: open it in a browser", highlight=False, soft_wrap=True)


def candidates(rest: Sequence[str]) -> list[Candidate]:
    """Every system of conf/system, planned, in the order of their modelled epochs; those without one last."""
    made = []
    for name in runner.configured():
        own = [f"system={name}", *rest]
        try:
            given: Given = parse(own)
            if len(given.runs) != 1:
                raise InputError("several values of a key are for halobench plan: give one of each")
            words, run = given.runs[0]
            planned = plan(run, given.cluster, given.sample, given.per_host)
        except InputError as error:
            made.append(Candidate(name, own, None, str(error)))
            continue
        why = "only a run tells what it sends" if planned.lacking else ""
        why = why or ("" if planned.fits is not False else "does not fit")
        made.append(Candidate(name, words, planned, why))
    if all(each.plan is None for each in made):
        raise InputError(made[0].why)
    return sorted(made, key=lambda each: each.epoch_s if each.plan and each.plan.seconds else float("inf"))


def chosen(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that are trained: the fastest by plan that fit, neither exact training nor the control."""
    there = [each for each in found if each.plan and each.plan.seconds and not each.why]
    return [each for each in there if not each.plan or not each.plan.run.system.role][:TRAINED]


def train(each: Candidate, rest: Sequence[str], goal: float | None) -> float:
    """Train a candidate on this machine, unless it has been; gives its best validation score, and notes in
    which epoch it reached `goal`."""
    assert each.plan is not None
    settings = each.plan.run.settings
    words = [*each.words, "device=cpu", "evaluate.every=1"]
    sample = [word.partition("=")[2] for word in rest if word.startswith("sample=")]
    words += [f"dataset.scale={value}" for value in sample]
    places = Places(Path(settings.results), Path(settings.cache), Path(settings.data_dir))
    made = runner.composed([words], places)
    folder = made[0].directory
    if runner.lacking(made):
        runner.start(" ".join(words), places, made)
    trace = Trace(folder)
    scores = trace.epochs.drop_duplicates("epoch").set_index("epoch")[f"val_{leading_score(trace)}"].dropna()
    if scores.empty:
        raise InputError(
            f"{folder} has no validation score, by which systems are compared: give another split"
        )
    each.best = float(scores.max())
    if goal is not None:
        reached = scores.index[scores >= goal]
        each.epochs = int(reached[0]) + 1 if len(reached) else None
    return each.best


def verdict(found: Sequence[Candidate], exact: Candidate, goal: float) -> list[str]:
    """The winner, why and by how much, and the command that trains it."""
    there = sorted(
        (each for each in found if each.reached_s is not None), key=lambda each: each.reached_s or 0.0
    )
    winner = there[0]
    assert winner.reached_s is not None and exact.reached_s is not None and exact.plan is not None
    lines = [
        f"take {winner.name}: {winner.reached_s:.4g} s modelled to a validation score of {goal:.4f}, which is"
        f" {100 * SHARE:.0f} % of exact training's best ({counted(winner.epochs or 0, 'epoch')} of"
        f" {1e3 * winner.epoch_s:.4g} ms)"
    ]
    for each in there[1:]:
        assert each.reached_s is not None
        lines.append(f"{each.name} needs {each.reached_s / winner.reached_s:.3g} times as long")
    lines.append("one seed, so that systems within a few per cent of each other are not told apart")
    epochs = exact.plan.run.settings.epochs
    if exact.epochs is not None and exact.epochs > 0.9 * epochs:
        lines.append(f"exact training was still improving after {epochs} epochs: give more epochs")
    lines.append(f"halobench run {' '.join(winner.words)}")
    return lines


def _row(each: Candidate, exact: Candidate) -> list[str]:
    """Its cells under HEADINGS."""
    planned = each.plan
    known = planned is not None and bool(planned.seconds)
    most = planned.bytes_epoch()[1] / 1e6 if planned is not None and planned.epochs else None
    return [
        each.name,
        f"{planned.needs / 1e9:.3f}" if planned is not None and planned.memory else "",
        "" if most is None else f"{most:.3f}",
        f"{1e3 * each.epoch_s:.3f}" if known else "",
        "" if each.best is None else f"{each.best:.4f}",
        "" if each.epochs is None else str(each.epochs),
        "" if each.reached_s is None else f"{each.reached_s:.4g}",
        each.why or _role(each, exact),
    ]


def _role(each: Candidate, exact: Candidate) -> str:
    if each is exact:
        return "exact training"
    if each.plan is not None and each.plan.run.system.role:
        return each.plan.run.system.role
    return "" if each.best is not None else "slower by plan, not trained"
