"""What else the machine does while the bench measures, and whether that is too much to judge by."""

import os
from contextlib import suppress
from dataclasses import dataclass

import psutil

BUSY = 0.05  # share of the CPUs' time that others may take before nothing is held to a target


@dataclass(frozen=True)
class Load:
    """before, after   processes that ran or waited for a CPU, the means of the minutes that ended then; the
                       bench's own are among them
    others             share, 0 to 1, of the time of the CPUs that the bench may use, that other
                       processes and, on a virtual machine, other machines took in between"""

    before: float
    after: float
    others: float

    @property
    def busy(self) -> bool:
        return self.others > BUSY

    def __str__(self) -> str:
        judged = f", more than {BUSY:.0%}: busy, not judged" if self.busy else ""
        return (
            f"load before {self.before:.1f}, after {self.after:.1f}; other processes took {self.others:.1%}"
            f" of the CPUs' time{judged}"
        )

    def row(self) -> dict[str, float | bool]:
        return {**vars(self), "busy": self.busy}


class Watch:
    """Begun before something is measured; `load()` says what the machine did since."""

    def __init__(self) -> None:
        self._load, self._own, (self._taken, self._all) = os.getloadavg()[0], own_seconds(), cpu_seconds()

    def load(self) -> Load:
        own = own_seconds() - self._own
        taken, everything = (now - then for now, then in zip(cpu_seconds(), (self._taken, self._all)))
        # Both are counted in ticks of a hundredth of a second, so that a short time can come out below 0.
        others = max(0.0, taken - own) / everything if everything > 0 else 0.0
        return Load(self._load, os.getloadavg()[0], min(others, 1.0))


def cpu_seconds() -> tuple[float, float]:
    """Seconds that anybody took of the CPUs that this process may use, and seconds of those CPUs in all."""
    times = psutil.cpu_times(percpu=True)
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    taken = idle = 0.0
    for cpu in allowed:
        each = times[cpu]._asdict()
        idle += each.pop("idle") + each.pop("iowait", 0.0)
        # A guest's time is part of user's and nice's already.
        taken += sum(seconds for name, seconds in each.items() if not name.startswith("guest"))
    return taken, taken + idle


def own_seconds() -> float:
    """CPU seconds of this process and all that it started, ended ones included."""
    process, seconds = psutil.Process(), 0.0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # ended by now: in its parent's times
            times = each.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
    return seconds
