"""The words of `halobench plan`: keys of the runs, keys of the cluster, and keys that say how to plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.base.errors import InputError, at_least, did_you_mean, within
from harness.base.words import key_of, key_value
from harness.core.cluster import GIB, Cluster, Device, Link
from harness.core.cluster_measure import host_memory, processor
from harness.model.plan.sized import with_launches
from harness.model.replay.settings import MEASURED, TRACED, cluster_of
from harness.results.identity import ALIAS
from harness.run import overrides
from harness.run.config import ALL as BLOCKS_OF_A_RUN
from harness.run.config import Run, RunConfig
from harness.run.runner import composed, expand
from harness.run.train import check_device

# keys that belong to no run, and the types of their values
OWN = {"sample": float, "probe": int, "per_host": int}


@dataclass
class Given:
    """What the words ask for.

    runs       each with the words that it was made of
    cluster    described
    sample, probe, per_host   None where they are not given
    assumed    what was assumed of the cluster, in words
    """

    runs: list[tuple[list[str], Run]]
    cluster: Cluster
    sample: float | None
    probe: int | None
    per_host: int | None
    assumed: list[str]


def parse(words: Sequence[str], here: bool = False) -> Given:
    """The runs and the cluster that the words name. InputError for a word that cannot be used, and where no
    cluster is named.

    here   take this machine where no cluster is named, and the default system of `halobench run` where no
           system is named
    """
    # Sort the words: keys of OWN, of the cluster, and of the runs.
    own: dict[str, float] = {}
    name, changes, rest = None, [], []
    for word in words:
        key = key_of(word)
        if key in OWN:
            own[key] = _number(*key_value(word))
        elif key == "cluster":
            _, name = key_value(word)
        elif key.startswith("cluster."):
            changes.append(word.removeprefix("cluster."))
        else:
            rest.append(word)
    known = [*OWN, "cluster", ALIAS, *RunConfig.__dataclass_fields__, *BLOCKS_OF_A_RUN]
    for word in rest:
        key = key_of(word)
        if key != word and key.isidentifier() and key not in known:
            raise InputError(f'"{word}" cannot be given here{did_you_mean(key, known)}')
    # Which cluster it is: this machine, or the one that is named.
    here = here and name in (None, MEASURED)
    if here:  # words of the cluster then belong to the run, and are checked with it
        rest += [f"cluster.{change}" for change in changes]
        if not torch.cuda.is_available() and "device" not in map(key_of, rest):
            rest.append("device=cpu")
    elif name is None:
        raise InputError(
            "no cluster is given: add cluster=NAME of conf/cluster, or a file that ends in .yaml"
        )
    elif name in (TRACED, MEASURED):
        raise InputError(
            f"cluster={name} describes no devices and links: name a cluster of conf/cluster, or a file that"
            " ends in .yaml"
        )
    if not here and not any(word.startswith("system=") for word in rest):
        raise InputError("system is not given: add system=NAME")
    # Values of OWN, then the runs and the cluster themselves.
    if "sample" in own:
        within("sample", own["sample"], 0, 1, above=True)
    for key in ("probe", "per_host"):
        if key in own:
            at_least(key, own[key], 1 if key == "per_host" else 2)
    overrides.check(["-m", *rest])
    lists = expand(rest)
    sample, probe, per_host = (own.get(key) for key in OWN)
    runs, assumed = composed(lists), list[str]()
    cluster = cluster_of(name, changes) if name and not here else _this_machine(runs)
    gpus = not here or torch.cuda.is_available()
    if gpus and all(run.settings.device != "cpu" for run in runs):
        cluster, assumed = with_launches(cluster)
    return Given(
        list(zip(lists, runs)),
        cluster,
        sample,
        None if probe is None else int(probe),
        None if per_host is None else int(per_host),
        assumed,
    )


def _this_machine(runs: Sequence[Run]) -> Cluster:
    """This machine as a cluster: as many devices as the largest run has workers, with equal shares of its
    memory. Messages between devices take no time, so modelled seconds are a lower bound."""
    for run in runs:
        check_device(run.settings.device)
    workers = max(run.settings.workers for run in runs)
    kind, memory = processor(), host_memory() / workers
    if torch.cuda.is_available() and any(run.settings.device != "cpu" for run in runs):
        gpu, number = torch.cuda.get_device_properties(0), torch.cuda.device_count()
        kind, memory = gpu.name, gpu.total_memory / math.ceil(workers / number)
    devices = [Device(kind=kind, memory_gb=memory / GIB) for _ in range(workers)]
    return Cluster("this machine", devices, inside=Link(gbytes_per_s=math.inf, latency_us=0.0))


def _number(key: str, value: str) -> float:
    try:
        return OWN[key](value)
    except ValueError:
        raise InputError(f'{key}="{value}" is not a number: give {key}=NUMBER') from None
