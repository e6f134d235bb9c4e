"""Some epochs of a system on this machine: what they took, what they would take on a cluster by a replay, and
what `halobench advise` knows of the system from both."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from harness.base.errors import InputError
from harness.base.places import command_line, own_config, own_config_option
from harness.core.cluster import Cluster
from harness.core.cluster_measure import processor
from harness.model.plan.plan import Plan
from harness.model.plan.sized import EFFICIENCY
from harness.model.plan.words import Given
from harness.model.replay.platform import devices_of
from harness.model.replay.program import crosses_hosts
from harness.model.replay.roofline import has_peaks
from harness.model.replay.settings import Replayer, Settings
from harness.model.replay.times import Times, by_worker, first_epoch, times_of
from harness.results import files
from harness.results.reader import STARTED, Trace
from harness.run import runner
from harness.run.runner import Places


@dataclass
class Trial:
    """What a run on this machine tells.

    trace   the run's
    times   of its warm epochs on the cluster, modelled
    ends    [epochs] modelled seconds until the slowest worker ends each epoch; the first epoch is counted
            without the time that compiling took in it
    bytes   of all workers, mean per epoch without the first
    across  whether workers read memory of another host's workers, which cannot be on this cluster
    """

    trace: Trace
    times: Times
    ends: list[float]
    bytes: float
    across: bool


def train_here(runs: Sequence[Sequence[str]], given: Given, more: Sequence[str]) -> list[Path | None]:
    """Train runs on this machine's processor, at scale `sample` where that is given. Returns each run's
    folder, or None where the run failed. Runs that have finished before are not repeated. InputError where
    none of them could be trained.

    runs   the words of each, to which `more` are added
    """
    more = ["device=cpu", f"results={given.runs[0][1].settings.results}/{STARTED}", *more]
    if given.how.sample is not None:
        more.append(f"dataset.scale={given.how.sample:g}")
    asked = runner.composed([[*words, *more] for words in runs])
    if missing := runner.lacking(asked):
        named = [word for words in runs for word in words if word.startswith("system=")]
        systems = [f"system={','.join(word.removeprefix('system=') for word in named)}"] if named else []
        common = [word for word in runs[0] if not word.startswith("system=")]
        places = Places.of(asked[0].settings)
        try:
            runner.start(" ".join([*systems, *common, *more]), places, missing)
        except InputError:
            if len(runner.lacking(asked)) == len(asked):
                raise
    return [None if runner.lacking([run]) else run.directory for run in asked]


@dataclass
class Probe:
    """What a probe measured.

    epochs   how many were run
    bytes    of all workers, mean per epoch without the first
    memory   bytes of memory of the host at the largest worker's peak
    said     all this in words
    """

    epochs: int
    bytes: float
    memory: float
    said: str


def probe(words: Sequence[str], given: Given) -> Probe:
    """Train `given.how.probe` epochs on this machine's processor, of the twin at `sample` where one is given.
    InputError where that fails."""
    assert given.how.probe is not None
    (folder,) = train_here([words], given, [f"epochs={given.how.probe}", "evaluate.every=0"])
    assert folder is not None  # else it has raised
    summary = files.read_json(folder / "summary.json")
    sent, memory = float(sum(summary["bytes_epoch"].values())), float(summary["peak_rss_max"])
    said = (
        f"probed: {given.how.probe} epochs here sent {sent / 1e6:.3f} MB per epoch, and the largest worker"
        f" took {memory / 1e9:.3f} GB of this host's memory ({folder})"
    )
    if given.how.sample is not None:
        said += f"; measured on the twin at scale {given.how.sample:g}, and not extrapolated"
    return Probe(given.how.probe, sent, memory, said)


def trial(folder: Path, cluster: Cluster, per_host: int | None, processors: bool) -> Trial:
    """A finished run, replayed on a cluster.

    processors   whether the cluster's devices are processors rather than GPUs

    Work lasts as traced where the cluster's devices are processors of this machine's kind, or do not give
    their peaks. On one host its length is in CPU seconds. Over several hosts it is in wall seconds, which
    include what the threads of sockets take from the cores (in CPU seconds, if workers outnumber this
    machine's cores). On any other cluster work lasts as long as on its devices (`compute=roofline`), at
    EFFICIENCY where the cluster gives no rates. Uncounted segments, as bookkeeping, then last as traced on
    processors; on GPUs they take no time, since a processor's seconds say nothing about a GPU.
    """
    trace = Trace(folder)
    peaks = all(map(has_peaks, cluster.devices))
    alike = processors and {device.kind for device in cluster.devices} == {processor()}
    hosts = [device.host for device in devices_of(cluster, int(trace.config["workers"]), per_host)]
    clock = None if len({*hosts}) > 1 else "cpu"
    settings = Settings(cluster.name, per_host, clock=clock)
    if peaks and not alike:
        rest = "traced" if processors else "none"
        settings = replace(settings, compute="roofline", efficiency=EFFICIENCY, uncounted=rest)
    timeline = Replayer(settings, cluster).replay(trace)
    program = timeline.program
    slowest = [max(own.epoch for own in epoch) for epoch in zip(*by_worker(timeline))]
    slowest[0] = first_epoch(timeline)
    sent = sum(files.read_json(folder / "summary.json")["bytes_epoch"].values())
    across = crosses_hosts(program, hosts)
    return Trial(trace, times_of(timeline), list(accumulate(slowest)), float(sent), across)


@dataclass
class Candidate:
    """A planned system, and what became of it.

    trial    its last run here, replayed on the cluster; None: nothing ran, or it ran on a smaller twin
    early_s  modelled seconds until its probe reached SHARE of the best score of exact training's probe;
             infinite where it did not
    epochs   until the score is reached; None: it is not, or nothing was trained
    best     best validation score; None: nothing was trained
    why      why it is out, in a few words; "" where it is not
    """

    name: str
    words: list[str]
    plan: Plan
    why: str = ""
    trial: Trial | None = None
    early_s: float = float("inf")
    epochs: int | None = None
    best: float | None = None

    @property
    def command(self) -> str:
        """The command line that trains it."""
        return command_line(["halobench", "run", *own_config_option(), *self.words], bool(own_config()))

    @property
    def role(self) -> str:
        """ "reference", "control", or "" """
        return self.plan.run.system.role

    @property
    def fits(self) -> bool:
        """False where its plan is known not to fit the cluster's devices. Exact training is trained on this
        machine even so, since its score is what others are held to."""
        return self.plan.fits is not False

    @property
    def epoch_s(self) -> float:
        """Modelled seconds of an epoch: as replayed, or as planned at the most bytes; infinite where neither
        is known."""
        times = [self.trial.times] if self.trial is not None else self.plan.seconds
        return max((each.epoch for each in times), default=float("inf"))

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        return self.plan.run.system.traits().steps if self.trial is None else self.trial.trace.steps

    @property
    def step_s(self) -> float:
        """Modelled seconds of an optimiser step; infinite where they are not known."""
        return self.epoch_s / self.steps

    @property
    def rank(self) -> tuple[float, float]:
        """The key by which systems are ordered: seconds of the probe, then seconds of an optimiser step."""
        return self.early_s, self.step_s

    @property
    def bytes(self) -> float | None:
        """Of all workers per epoch: as counted in a run, or as planned at the most; None where neither is
        known."""
        if self.trial is not None:
            return self.trial.bytes
        return None if self.plan.lacking else self.plan.bytes_epoch()["most"]

    @property
    def reached_s(self) -> float:
        """Modelled seconds until the score is reached; where a trial is known, with what its first epoch
        fetches. Infinite where the score is not reached, no times are known, or the system does not fit."""
        if self.epochs is None or not self.fits:
            return float("inf")
        return self.trial.ends[self.epochs - 1] if self.trial is not None else self.epochs * self.epoch_s
