"""The words of `halobench plan`: keys of the runs, keys of the cluster, and keys that say how to plan."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from harness.base.bounds import number
from harness.base.errors import InputError, typed
from harness.base.words import key_of, key_values
from harness.core.cluster import GIB, Cluster, Device, Link
from harness.core.cluster_measure import host_memory, processor
from harness.model.plan.sized import with_launches
from harness.model.replay.settings import MEASURED, TRACED, cluster_of, sort_words
from harness.run import overrides
from harness.run.config import Run
from harness.run.runner import composed, expand
from harness.run.train import check_device


@dataclass
class How:
    """Keys that belong to no run: how to plan.

    sample     scale of the smaller twins that a plan is extrapolated from
    probe      epochs that are trained here too
    per_host   workers on each host
    """

    sample: float | None = number(None, 0, 1, above=True)
    probe: int | None = number(None, 2)
    per_host: int | None = number(None, 1)


@dataclass
class Given:
    """What the words ask for.

    runs       each with the words that it was made of
    cluster    described
    how        it is planned
    assumed    what was assumed of the cluster, in words
    cluster_name   as one types it, with what was changed of it and how many workers each host has
    """

    runs: list[tuple[list[str], Run]]
    cluster: Cluster
    how: How
    assumed: list[str]
    cluster_name: str


def parse(words: Sequence[str], here: bool = False) -> Given:
    """The runs and the cluster that the words name. InputError for a word that cannot be used, and where no
    cluster is named.

    here   take this machine where no cluster is named, and the default system of `halobench run` where no
           system is named
    """
    own = [*How.__dataclass_fields__, "cluster"]
    _, changes, rest = sort_words(words, ())
    given = key_values(word for word in rest if key_of(word) in own and not word.endswith("=null"))
    rest = [word for word in rest if key_of(word) not in own]
    name = given.pop("cluster", None)
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
    how = typed(How, given, "")
    overrides.check(["-m", *rest], own)
    lists = expand(rest)
    runs, assumed = composed(lists), list[str]()
    cluster = _this_machine(runs) if here else cluster_of(str(name), changes)
    gpus = not here or torch.cuda.is_available()
    if gpus and all(run.settings.device != "cpu" for run in runs):
        cluster, assumed = with_launches(cluster)
    per_host = [] if how.per_host is None else [f"per_host={how.per_host}"]
    typed_name = " ".join([cluster.name, *([] if here else changes), *per_host])
    return Given(list(zip(lists, runs)), cluster, how, assumed, typed_name)


def _this_machine(runs: Sequence[Run]) -> Cluster:
    """This machine as a cluster: as many devices as the largest run has workers, with equal shares of its
    memory. Messages between devices take no time, so modelled seconds are a lower bound."""
    for run in runs:
        check_device(run.settings.device)
    workers = max(run.settings.workers for run in runs)
    kind, memory = processor(), host_memory() / workers
    if torch.cuda.is_available() and any(run.settings.device != "cpu" for run in runs):
        gpu, gpus = torch.cuda.get_device_properties(0), torch.cuda.device_count()
        kind, memory = gpu.name, gpu.total_memory / math.ceil(workers / gpus)
    devices = [Device(kind=kind, memory_gb=memory / GIB) for _ in range(workers)]
    return Cluster("this machine", devices, inside=Link(gbytes_per_s=math.inf, latency_us=0.0))
