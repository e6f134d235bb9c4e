"""The words of `halobench replay`: runs, and KEY=VALUE words that say on what and how they are replayed."""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base import yaml_text
from harness.base.bounds import number, word
from harness.base.errors import InputError, did_you_mean, typed
from harness.base.places import CONF
from harness.base.words import check_digits, key_of, key_value, key_values, read_value
from harness.core.cluster import UNFITTED, Cluster, Fit
from harness.model.replay import rounds
from harness.model.replay.collectives import BROADCASTS
from harness.model.replay.engine import Timeline
from harness.model.replay.platform import instant, platform_of
from harness.model.replay.program import Program, blocking, grown, held_up
from harness.model.replay.read import CLOCKS, clock_of, program_of
from harness.model.replay.roofline import Roofline
from harness.results.reader import MISSHAPEN, Trace
from harness.results.schema import AGAIN

PRESETS = Path(CONF) / "cluster"
MEASURED = "measured"  # the preset of a run whose devices are measured when it starts: it describes none
TRACED = "traced"  # cluster=traced: the machine that the run was made on


@dataclass
class Settings:
    """On what runs are replayed, and how.

    cluster      a preset's name (conf/cluster), a file that ends in .yaml, or "traced": the machine that the
                 run was made on, whose waits last as traced
    per_host     workers on each host; None: one on each of the cluster's devices, in their order
    cores        how many cores the threads of all hosts share, where hosts are parts of one machine, as
                 network namespaces are; None: each host has its own, where the cluster says how many
    compute      "traced": segments of work last as long as traced; "roofline": as what they computed takes on
                 the cluster's devices (`harness.model.replay.roofline`)
    clock        which seconds traced work lasts, "wall" or "cpu"; None: on a described cluster CPU seconds
                 where workers outnumbered the cores, with a roofline, or with `cores`; otherwise wall seconds
    overlap      "ours": what is sent travels while workers compute, as here; "published": only in systems
                 whose papers have it so (`harness.core.system.Traits`); workers of the others stop for it
    broadcast    how broadcasts are made (`harness.model.replay.collectives`)
    efficiency   of a roofline, for kinds of work that the cluster gives no rate of, in (0, 1]
    fit          "printed": efficiency and rates of links as fitted to what is printed of the testbed and the
                 run's graph (`harness.core.cluster.Fit`); "none"
    uncounted    of a roofline, how long segments last that say nothing of what they computed: "traced", in
                 seconds of `clock`, or "none", no time
    grown        as if the graph were so many times as large (`harness.model.replay.program.grown`)
    straggler    the number of a worker that is held up for `delay` seconds in every epoch and whose work
                 lasts `slowdown` times as long (`harness.model.replay.program.held_up`); None: no worker
    """

    cluster: str = TRACED
    per_host: int | None = number(None, 1)
    cores: int | None = number(None, 1)
    compute: str = word("traced", "roofline")
    clock: str | None = word(None, *CLOCKS)
    overlap: str = word("ours", "published")
    broadcast: str = word(*BROADCASTS)
    efficiency: float = number(1.0, 0, 1, above=True)
    fit: str = word("none", "printed")
    uncounted: str = word("traced", "none")
    grown: float = number(1.0, above=True)
    straggler: int | None = number(None)
    delay: float = number(0.0)
    slowdown: float = number(1.0, 1)

    def __post_init__(self) -> None:
        if self.compute == "roofline" and self.cluster == TRACED:
            raise InputError(
                "compute=roofline is for described devices: name a cluster, as halobench cluster measure"
                " writes one of this machine, or give compute=traced"
            )
        if self.compute != "roofline" and (key := self._given("efficiency", "uncounted", "fit")):
            raise InputError(f"{key} is for compute=roofline: give that too, or leave it out")
        elsewhere = self._given("overlap", "grown", "per_host", "cores", "broadcast")
        if elsewhere and self.cluster == TRACED:
            raise InputError(
                f"{elsewhere} is for described clusters: name one by cluster=NAME, or leave it out"
            )
        if self.cores is not None and self.clock == "wall":
            raise InputError(f"cores={self.cores} is for CPU seconds: leave out clock=wall, or cores")
        if self.fit != "none" and self.efficiency != 1:
            raise InputError(f"fit={self.fit} has an efficiency of its own: leave efficiency out")
        slow = self._given("delay", "slowdown")
        if slow and self.straggler is None:
            raise InputError(f"{slow} slows no worker: add straggler=N, a worker's number, or leave it out")
        if self.straggler is not None and not slow:
            raise InputError(
                f"straggler={self.straggler} is as fast as it was: give a delay in seconds, or a slowdown of"
                " more than 1"
            )

    def _given(self, *keys: str) -> str:
        """The first of these keys that is not at its default, as KEY=VALUE; "" where all are."""
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        given = {key: getattr(self, key) for key in keys if getattr(self, key) != usual[key]}
        return next((f"{k}={v if isinstance(v, str) else f'{v:g}'}" for k, v in given.items()), "")


@dataclass
class Replayer:
    """Settings with the cluster that they name, read and changed as its words say.

    described   the cluster; None: the machine that a run was made on
    changes     the words that changed it, as "between.gbytes_per_s=0.125"
    """

    settings: Settings
    described: Cluster | None
    changes: tuple[str, ...] = ()
    rooflines: dict[Path, Roofline] = field(default_factory=dict)  # by run, where compute=roofline

    @property
    def display_name(self) -> str:
        """The cluster's name, with what was changed of it."""
        return " ".join([self.settings.cluster, *self.changes])

    def program(self, trace: Trace) -> Program:
        """The program of a run under these settings. InputError where the settings do not fit the run."""
        lasts = None
        if self.settings.compute == "roofline":
            assert self.described is not None
            settings, fit = self.settings, self.fit(trace)
            overall = 1.0 if fit is None else fit.efficiency
            how = settings.per_host, settings.efficiency, overall, settings.grown, settings.uncounted
            lasts = Roofline(self.described, int(trace.config["workers"]), *how)
            self.rooflines[trace.run_dir] = lasts
        read = program_of(trace, self.clock(trace), waits=self.described is None, lasts=lasts)
        if self.settings.overlap == "published" and not overlaps(trace):
            read = blocking(read)
        read = grown(read, self.settings.grown, work=lasts is None)
        if (rank := self.settings.straggler) is not None:
            if rank >= read.workers:
                raise InputError(
                    f"straggler={rank} is not a worker of {trace.run_dir}: give 0 to {read.workers - 1}"
                )
            read = held_up(read, rank, self.settings.delay, self.settings.slowdown)
        return read

    def replay(self, trace: Trace) -> Timeline:
        """Simulate a run. InputError where it cannot be replayed, also for spans that no run could have
        traced."""
        with refused_spans(trace):
            program = self.program(trace)
            if self.described is not None:
                return self.on(self.fitted(trace), program)
            if len(trace.environment.get("hosts") or []) > 1:
                raise InputError(
                    f"{trace.run_dir} ran on several hosts, whose clocks do not compare: its own waits cannot"
                    " be replayed; name a described cluster"
                )
            return rounds.simulate(program, instant(program.workers), "direct")

    def on(self, cluster: Cluster, program: Program) -> Timeline:
        """Simulate a program on a described cluster."""
        platform = platform_of(cluster, program.workers, self.settings.per_host, self.settings.cores)
        return rounds.simulate(program, platform, self.settings.broadcast)

    def fit(self, trace: Trace) -> Fit | None:
        """The cluster's fit to a run's graph; None where no fit is asked for. InputError where the cluster
        has no fit to that graph, or could not be fitted to it."""
        if self.settings.fit == "none" or self.described is None:
            return None
        graph = str(trace.config["dataset"]["name"]).removeprefix("twin/")
        fit = next((each for each in self.described.fits if each.graph == graph), None)
        if fit is None:
            known = ", ".join(each.graph for each in self.described.fits) or "none"
            raise InputError(
                f"cluster={self.described.name} has no fit for {graph} (it has {known}): give fit=none with"
                " efficiency and rates of links, or run halobench cluster fit"
            )
        if fit.missed_by != 1:
            raise InputError(
                f"cluster={self.described.name} {UNFITTED} {graph}: with any rate of its"
                f" links seconds are {fit.missed_by:g} times those of {fit.source}; give fit=none with"
                " efficiency and rates of links"
            )
        return fit

    def fitted(self, trace: Trace) -> Cluster:
        """The cluster with the rates of links that are fitted to a run's graph, for pairs and broadcasts
        alike."""
        assert self.described is not None
        if (fit := self.fit(trace)) is None:
            return self.described
        links = {"inside": fit.inside_gbytes_per_s, "between": fit.between_gbytes_per_s}
        for change in self.changes:
            kind, _, key = change.partition("=")[0].partition(".")
            if links.get(kind) is not None and key in ("", "gbytes_per_s", "broadcast_gbytes_per_s"):
                raise InputError(
                    f"{change} is fitted to what is printed (fit={self.settings.fit}): leave it out, or give"
                    " fit=none"
                )
        changed = {
            name: dataclasses.replace(
                getattr(self.described, name), gbytes_per_s=rate, broadcast_gbytes_per_s=None
            )
            for name, rate in links.items()
            if rate is not None
        }
        return dataclasses.replace(self.described, **changed)

    def clock(self, trace: Trace) -> str:
        """Which seconds work lasts in a replay of this run."""
        if self.settings.clock is not None or self.described is None:
            return self.settings.clock or "wall"
        # CPU seconds, since others' work must not lengthen what a roofline does not model, or what shares
        # cores.
        settings = self.settings
        return "cpu" if settings.compute == "roofline" or settings.cores is not None else clock_of(trace)


@contextlib.contextmanager
def refused_spans(trace: Trace) -> Iterator[None]:
    """Turn the error of replaying spans that no run could have traced into an InputError."""
    try:
        yield
    except InputError:
        raise
    except MISSHAPEN as error:
        raise InputError(
            f"{trace.run_dir} cannot be replayed: its spans do not fit together"
            f" ({type(error).__name__}: {error}); {AGAIN}"
        ) from error


def overlaps(trace: Trace) -> bool:
    """Whether a run's system, as published, computes while it sends. InputError where the trace does not
    say."""
    said = (trace.resolved or {}).get("overlaps")
    if said is None:
        raise InputError(
            f"{trace.run_dir} does not say whether its system's exchanges overlap in its paper: run it again"
            " with fresh=true, or leave overlap=published out"
        )
    return bool(said)


def sort_words(words: Iterable[str], known: Collection[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """(values of words KEY=VALUE of `known` keys, read as YAML; words of the cluster without "cluster.";
    the other words). InputError for a value that cannot be read or has too many digits. The name of a cluster
    stays as it is, since a file's may hold what means something in YAML."""
    given: dict[str, Any] = {}
    changes, others = [], []
    for each in words:
        check_digits(each)
        key = key_of(each)
        if key.startswith("cluster.") and key != each:
            changes.append(each.removeprefix("cluster."))
        elif key in known:
            given[key] = key_value(each)[1] if key == "cluster" else read_value(each)
        else:
            others.append(each)
    return given, changes, others


def parse(words: Sequence[str], more: Collection[str] = ()) -> tuple[list[str], Replayer, dict[str, str]]:
    """(runs, what replays them, the texts of words of the keys in `more`). A word with "=" is KEY=VALUE
    unless it is a file that exists; InputError for an unknown one."""
    runs = [each for each in words if "=" not in each or os.path.exists(each)]
    known = [field.name for field in dataclasses.fields(Settings)]
    given, changes, others = sort_words((each for each in words if each not in runs), known)
    for each in others:
        if (key := key_of(each)) not in more:
            near = did_you_mean(key, [*known, *more, "cluster.KEY"])
            raise InputError(f'"{each}" cannot be given here{near}')
    if not runs:
        raise InputError("no run is given: give run folders, folders above some, or glob patterns")
    settings, described = typed(Settings, given, ""), None
    if settings.cluster != TRACED:
        described = cluster_of(settings.cluster, changes, beside=(TRACED,))
    elif changes:
        raise InputError(f"cluster.{changes[0]} changes nothing of cluster=traced: name a described cluster")
    return runs, Replayer(settings, described, tuple(changes)), key_values(others)


def cluster_of(name: str, changes: Sequence[str] = (), beside: Sequence[str] = ()) -> Cluster:
    """A preset, or the cluster of a file that ends in .yaml, changed by words like between.latency_us=50.
    InputError where there is none, or a word or value does not fit.

    beside   further names that an error may suggest
    """
    own = name.endswith(".yaml")
    path = Path(name) if own else PRESETS / f"{name}.yaml"
    if name == "local":
        raise InputError(
            "cluster=local is this machine once it is measured: run halobench cluster measure --out"
            " local.yaml, and give cluster=local.yaml"
        )
    if not path.is_file():
        presets = {str(p.relative_to(PRESETS).with_suffix("")) for p in PRESETS.rglob("*.yaml")} - {MEASURED}
        nothing = "does not exist" if own else "is not known"
        gpu = re.sub(r"^\d+x", "", name)  # of "8xh100", which "dgx_h100" has
        named = next((each for each in sorted(presets) if gpu != name and gpu in each), name)
        near = did_you_mean(named, [*beside, *presets])
        raise InputError(f'cluster="{name}" {nothing}{near}')
    try:
        made = _described(yaml_text.read(path), tuple(changes))
    except InputError:
        raise
    except (OmegaConfBaseException, yaml.YAMLError, OSError, *MISSHAPEN) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"cluster={name} cannot be read ({said.rstrip('.')}); mend it") from None
    if made is None:
        raise InputError(f"cluster={name} is not a block of a cluster: {path} holds no keys; mend it")
    if made.measured:
        traced = ", or cluster=traced for the machine that the run was made on" if TRACED in beside else ""
        raise InputError(
            f"cluster={name} describes no devices and links: name a cluster of conf/cluster that does, or a"
            f" file that ends in .yaml{traced}"
        )
    return made


@functools.lru_cache(maxsize=256)
def _described(text: str, changes: tuple[str, ...]) -> Cluster | None:
    """The cluster that a file's text describes, changed by words; None where it holds no keys. Cached, since
    it takes 30 ms, and claims ask for one cluster in many words. What `cluster_of` catches is raised."""
    values = yaml_text.parsed(text)
    if not isinstance(values, dict | None):
        return None
    if changes:
        merged = OmegaConf.merge(OmegaConf.create(values or {}), OmegaConf.from_dotlist(list(changes)))
        values = OmegaConf.to_container(merged)
    return typed(Cluster, {str(key): value for key, value in (values or {}).items()}, "cluster")
