"""halobench advise dataset=NAME workers=N cluster=NAME ...: which system for this graph on this cluster.

Every system is planned. All but the control are probed: each is trained for some epochs on this machine, and
its trace is replayed on the cluster. Then exact training, the control and three others are trained in full.
Two of the three are those whose probes come first to 99 % of the score that exact training has in its own
probe; the third is the one of the rest with the fastest optimiser steps. The winner has the least modelled
time to 99 % of exact training's best validation score. A system that does not reach that score is out.
"""

from collections.abc import Sequence

import pandas as pd

from harness.base import tables
from harness.base.errors import InputError
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.terminal import counted, unfolded
from harness.core.mixins import AsynchronousSystem
from harness.model.plan import trial
from harness.model.plan.plan import Plan, plan
from harness.model.plan.trial import Candidate
from harness.model.plan.words import Given, parse
from harness.results.summary import validation_scores
from harness.run import runner

TRAINED = 3  # systems that are trained, beside exact training and the control
EPOCHS = 60  # where `epochs` is not given
PROBED = 20  # epochs of a probe where `probe` is not given
TOLD_APART = 2.0  # modelled seconds are down to half of the measured ones (docs/howto/plan.md)
SHARE = 0.99  # of exact training's best validation score
FULL = "does not fit"
UNKNOWN = "only a run tells what it sends"
ACROSS = "shares memory: one host only"
ASYNCHRONOUS = "asynchronous: its scores elsewhere are not known"
HEADINGS = (
    "system", "GB per worker", "MB per epoch", "steps", "modelled epoch, ms", "best val", "epochs",
    "modelled s", "",
)  # fmt: skip
DESCRIPTION = """\
Which system for a graph on a cluster. All systems are planned. All but the control are probed: trained for
some epochs on this machine, and replayed on the cluster. Then exact training, the control and three others
are trained: the two that are best by then, and of the rest the one with the fastest steps. Of these the one
with the least modelled time to 99 % of exact training's best validation score is named. Where none of the
three reaches that score, the next three are trained.

words:
  dataset=NAME workers=N and any key of halobench run but system; epochs=N of the training (default 60)
  cluster=NAME, cluster.KEY=VALUE, per_host=N, sample=SCALE   as halobench plan has them
  probe=EPOCHS of each system here, whose trace is replayed on the cluster (default 20; none with sample=, or
  where it is 0: systems are then ordered by their planned seconds per optimiser step)
"""


@command("halobench advise")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=DESCRIPTION, formatter_class=AS_WRITTEN)
    parser.add_argument("words", nargs="+", metavar="KEY=VALUE")
    rest = list(parser.parse_intermixed_args(words).words)
    if any(word.startswith("system=") for word in rest):
        raise InputError(
            "halobench advise chooses among all systems: leave system= out, or ask halobench plan"
        )
    console = unfolded()
    if not any(word.startswith("epochs=") for word in rest):
        rest.append(f"epochs={EPOCHS}")
    if "probe=0" in rest:
        rest.remove("probe=0")
    elif not any(word.startswith(("probe=", "sample=")) for word in rest):
        rest.append(f"probe={PROBED}")
    given, found, refused = candidates(rest)
    exact = next((each for each in found if each.role == "reference"), None)
    if exact is None or not exact.plan.seconds:
        raise InputError(
            "exact training cannot be planned here, and systems are held to its validation score"
        )
    probes = given.how.probe is not None and given.how.sample is None
    # Mini-batches are not planned, so that only a probe tells of them.
    may_run = [each for each in found if each.role != "control" and each.why in ("", UNKNOWN)]
    some = any(each.fits and (probes or each.plan.seconds) for each in may_run)
    if some and probes:
        # A probe's trace also has what a plan leaves out (codes, caches, draws) and what only a run tells.
        probe([exact, *(each for each in may_run if each is not exact)], given)
    found.sort(key=lambda each: each.rank)
    goal = train_best(found, exact, given) if some else None
    rows = [
        *(_row(each, exact) for each in found),
        *([name, *[""] * 7, why] for name, why in refused.items()),
    ]
    console.print(tables.shown(HEADINGS, rows, words=(HEADINGS[0], HEADINGS[-1])))
    said, winner = verdict(found, exact, goal, one_device(exact, given))
    command = [] if winner is None else [winner.command]
    for line in [*said, *command, *(f"note: {note}" for note in exact.plan.notes)]:
        console.say(line)


def candidates(rest: Sequence[str]) -> tuple[Given, list[Candidate], dict[str, str]]:
    """Plan every system of conf/system. Returns what the words ask for beside the system, the planned
    systems, and by name of the others why they cannot be planned.

    InputError where no system can be planned.
    """
    made, refused, asked = [], {}, None
    for name in runner.configured():
        try:
            given = parse([f"system={name}", *rest])
            if len(given.runs) != 1:
                raise InputError("several values of a key are for halobench plan: give one of each")
            words, run = given.runs[0]
            planned = plan(run, given.cluster, given.how.sample, given.how.per_host)
        except InputError as error:
            refused[name] = str(error)
            continue
        planned.notes += given.assumed
        asked = given
        why = ACROSS if planned.across else UNKNOWN if planned.lacking else ""
        why = ASYNCHRONOUS if isinstance(run.system, AsynchronousSystem) else why
        if planned.fits is False and run.system.role != "reference":
            why = FULL
        made.append(Candidate(name, words, planned, why))
    if asked is None:
        raise InputError(next(iter(refused.values())))
    return asked, made, refused


def chosen(found: Sequence[Candidate]) -> list[Candidate]:
    """The systems that are trained next. They fit, have not been trained, and are neither exact training nor
    the control. TRAINED - 1 of them are the first of `found`; the last is the one of the others with the
    fastest optimiser steps, since a system that needs as many steps as exact training may show little in a
    probe of few epochs."""
    known = (each for each in found if each.step_s < float("inf"))
    there = [each for each in known if not each.role and not each.why and each.best is None]
    first, rest = there[: TRAINED - 1], there[TRAINED - 1 :]
    return [*first, *sorted(rest, key=lambda each: each.step_s)[:1]]


def run(there: Sequence[Candidate], more: Sequence[str], given: Given) -> None:
    """Run candidates here and replay their traces on the cluster. A candidate whose run fails is out."""
    planned = there[0].plan
    if len({*planned.hosts}) > 1:
        more = [*more, "transport=sockets"]  # the trace then holds what messages to other hosts cost
    # Only processors have measured rates (`halobench cluster measure`): a cluster with rates has them as
    # devices.
    processors = bool(given.cluster.rates) or planned.run.settings.device == "cpu"
    folders = trial.train_here([each.words for each in there], given, more)
    for each, folder in zip(there, folders):
        if folder is None:
            each.trial, each.why = None, "its run failed"
            continue
        each.trial = trial.trial(folder, given.cluster, given.how.per_host, processors)
        each.why = ACROSS if each.trial.across else ""


def probe(there: Sequence[Candidate], given: Given) -> None:
    """Run candidates, exact training first, for a few epochs. Notes for each the modelled seconds until it
    reaches SHARE of the best score that exact training has in its probe."""
    run(there, [f"epochs={given.how.probe}", "evaluate.every=1"], given)
    for each, reached in zip(there, _reached(there)[1]):
        if reached is not None and each.trial is not None:
            each.early_s = each.trial.ends[reached - 1]


def train_best(found: Sequence[Candidate], exact: Candidate, given: Given) -> float:
    """Train exact training, the controls and the systems that `chosen` takes from `found`. While none of
    these reaches the score that `train` returns, train the next ones: a system that is fast in its probe may
    stay below that score. Returns the score."""
    controls = [each for each in found if each.role == "control"]
    goal = train([exact, *chosen(found), *controls], given)
    while not any(each.epochs for each in found if not each.role) and (more := chosen(found)):
        goal = train([exact, *more], given)
    return goal


def train(there: Sequence[Candidate], given: Given) -> float:
    """Train candidates, exact training first. Notes each one's best validation score and the epoch in which
    it reaches SHARE of exact training's best. Returns that goal; a candidate that does not reach it is out.
    """
    run(there, ["evaluate.every=1"], given)
    goal, found = _reached(there)
    for each, reached in zip(there, found):
        if each.trial is None or each.why:
            continue
        each.epochs = reached
        each.best = float(validation_scores(each.trial.trace).max())
        if each.epochs is None:
            each.why = f"stays at {each.best:.4f}, below {goal:.4f}"
        if given.how.sample is not None:
            each.trial = None  # it ran on a smaller graph than the plan is for
    return goal


def _reached(there: Sequence[Candidate]) -> tuple[float, list[int | None]]:
    """The goal, which is SHARE of the best validation score of exact training (the first), and for each
    candidate the number of epochs until it reaches the goal: None where it does not, or is out.

    InputError where exact training could not be run, or there is no validation score.
    """
    exact = there[0].trial
    if exact is None:
        raise InputError("exact training failed here, and systems are held to its validation score")
    if validation_scores(exact.trace).empty:
        raise InputError(
            f"{exact.trace.run_dir} has no validation score, by which systems are compared: give another"
            " split"
        )
    goal = SHARE * float(validation_scores(exact.trace).max())
    found: list[int | None] = []
    for each in there:
        scores = validation_scores(each.trial.trace) if each.trial and not each.why else pd.Series()
        above = scores.index[scores >= goal]
        found.append(int(above[0]) + 1 if len(above) else None)
    return goal, found


def verdict(
    found: Sequence[Candidate], exact: Candidate, goal: float | None, alone_s: float | None = None
) -> tuple[list[str], Candidate | None]:
    """The answer in sentences, and the winner. The winner is None where no system fits or none reaches
    `goal`.

    goal      validation score to reach; None: nothing was trained, since no system fits
    alone_s   modelled seconds of exact training's epoch on one device; None: not known, or it does not fit
    """
    if goal is None:
        return _none_fits(found, exact.plan), None
    reached = (each for each in found if each.reached_s < float("inf") and each.role != "control")
    there = sorted(reached, key=lambda each: each.reached_s)
    lines, winner = [f"no system that fits comes to a validation score of {goal:.4f}"], None
    if there:
        winner = there[0]
        taken = f"{counted(winner.epochs or 0, 'epoch')} of {1e3 * winner.epoch_s:.4g} ms"
        lines = [
            f"take {winner.name}: {winner.reached_s:.4g} s modelled to a validation score of {goal:.4f}, "
            f"which is {100 * SHARE:.0f} % of exact training's best ({taken})"
        ]
        for each in there[1:]:
            times = each.reached_s / winner.reached_s
            apart = "" if times > TOLD_APART else ", which the model does not tell apart"
            lines.append(f"{each.name} needs {times:.3g} times as long{apart}")
        lines.append(
            f"one seed, and modelled seconds are up to {TOLD_APART:g} times too short: what lies nearer"
            " together is not told apart"
        )
        if alone_s is not None and alone_s <= winner.epoch_s:
            lines.insert(
                0,
                f"too small to matter: one device is enough, whose epoch of exact training takes"
                f" {1e3 * alone_s:.4g} ms, no more than {winner.name}'s of {1e3 * winner.epoch_s:.4g} ms",
            )
    lines[:0] = [_control(each, goal) for each in found if each.role == "control" and each.best is not None]
    if not exact.fits:
        lines.append("exact training does not fit: it was trained here for its score alone")
    epochs = exact.plan.run.settings.epochs
    if exact.epochs is not None and exact.epochs > 0.9 * epochs:
        lines.append(f"exact training was still improving after {epochs} epochs: give more epochs")
    return lines, winner


def _control(each: Candidate, goal: float) -> str:
    """What the control says of this graph."""
    if each.epochs is not None:
        return f"remote rows do not matter for this score: {each.name} uses none and comes to {each.best:.4f}"
    return f"remote rows matter: {each.name} uses none and stays at {each.best:.4f}, below {goal:.4f}"


def one_device(exact: Candidate, given: Given) -> float | None:
    """Modelled seconds of exact training's epoch by one worker; None: it does not fit, or is not known."""
    words = [word for word in exact.words if not word.startswith(("workers=", "gpus=", "per_host="))]
    try:
        (run,) = runner.composed([[*words, "workers=1"]])
        alone = plan(run, given.cluster, given.how.sample)
    except InputError:  # one worker is less than some configs allow
        return None
    return min((times.epoch for times in alone.seconds), default=None) if alone.fits is not False else None


def _none_fits(found: Sequence[Candidate], exact: Plan) -> list[str]:
    """What to do where no planned system fits, so that nothing was trained. One that fits, and is out for
    another reason, is not named."""
    planned = [each for each in found if each.role != "control" and not each.plan.lacking and not each.fits]
    needs, least = min((each.plan.needs, each.name) for each in planned)
    lines = [
        f"no system fits: {least}, which needs least, takes {needs / 1e9:.3g} GB of a device that has"
        f" {min(exact.has) / 1e9:.3g}: give more workers, a smaller model, or devices with more memory"
    ]
    unplanned = ", ".join(each.name for each in found if each.why == UNKNOWN)
    if unplanned:
        lines.append(f"not planned, since {UNKNOWN}: {unplanned}")
    return lines


def _row(each: Candidate, exact: Candidate) -> list[str]:
    """The cells of a candidate's row, under HEADINGS."""
    known = each.epoch_s < float("inf")
    role = each.role or ("" if each.best is not None else "not trained")
    if each is exact:
        role = "exact training" if each.fits else f"exact training, {FULL}"
    return [
        each.name,
        "" if each.plan.lacking else f"{each.plan.needs / 1e9:.3f}",
        "" if each.bytes is None else f"{each.bytes / 1e6:.3f}",
        str(each.steps) if known else "",
        f"{1e3 * each.epoch_s:.3f}" if known else "",
        "" if each.best is None else f"{each.best:.4f}",
        "" if each.epochs is None else str(each.epochs),
        f"{each.reached_s:.4g}" if each.reached_s < float("inf") else "",
        each.why or role,
    ]
