"""What a comparison can tell: differences paired over seeds, and where the control is as good as exact
training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.report.columns import Column
from harness.report.groups import Estimate, Group, estimate
from harness.trace.identity import MEETING_KEYS


def paired(a: Group, b: Group, value: Callable[[dict[str, Any]], float | None]) -> Estimate:
    """The mean of a's value less b's over the seeds that both have, with its interval."""
    ours, theirs = a.by_seed(value), b.by_seed(value)
    return estimate(ours[seed].mean - theirs[seed].mean for seed in ours if seed in theirs)


def reference_of(group: Group, groups: list[Group]) -> Group | None:
    """Exact training under the group's own setting, with raw features fetched as often as the group does
    where that is there; None where there is none."""
    exact = [g for g in groups if g.first.role == "reference" and g.finished and setting(g) == setting(group)]
    fetched = group.first.keys.get("system.features")
    return min(exact, key=lambda g: g.first.keys.get("system.features") != fetched, default=None)


def cannot_tell(groups: list[Group], score: Column) -> list[str]:
    """One sentence for each setting in which a system without remote rows (`role` "control") scores as well
    as exact training ("reference"): the interval of the difference, paired over seeds, reaches 0, so the
    score cannot tell whether a system uses remote rows."""
    said = []
    for control in (g for g in groups if g.first.role == "control" and g.finished):
        reference = reference_of(control, groups)
        if reference is None:
            continue
        ahead = paired(reference, control, score.value)
        where = f"{control.partition}, {control.workers} workers"
        if ahead.n < 2:
            said.append(
                f"{where}: {ahead.n} seed in common says nothing of whether {reference.label} is ahead of the"
                f" control {control.label}."
            )
        elif ahead.mean - (ahead.half or 0.0) <= 0:
            name = score.heading.removesuffix(" %")
            said.append(
                f"{where}: {name} cannot tell whether a system uses remote rows here: {reference.label} is "
                f"ahead of the control {control.label} by {ahead:.2f} points over {ahead.n} seeds."
            )
    return said


def setting(group: Group) -> str:
    """What two groups must share to be compared: everything but the system, the seed and the name, and what
    concerns asynchronous systems alone."""
    apart = {"seed", "label", *MEETING_KEYS}
    keys = {k: v for k, v in group.first.keys.items() if not k.startswith("system.") and k not in apart}
    return repr(sorted(keys.items(), key=lambda pair: pair[0]))
