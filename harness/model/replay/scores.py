"""Whether the scores of a run would be its own on another cluster.

A replay repeats what was computed. Two kinds of runs would compute something else on another cluster: an
asynchronous run, which depends on the order in which its workers' updates come, and a run with RAPA's
partition, which depends on its workers' devices (`Traits.devices`).
"""

from __future__ import annotations

from dataclasses import asdict

from harness.base.errors import InputError
from harness.core.cluster import Cluster
from harness.results.reader import Trace
from harness.results.rounds import Rounds


def check(trace: Trace, cluster: Cluster | None, instead: str) -> None:
    """InputError where the run's losses and scores are not known on a cluster.

    cluster   None: the machine that it was made on
    instead   what the error tells the user to do instead
    """
    if Rounds.read(trace).asynchronous:
        raise InputError(
            f"{trace.run_dir} is asynchronous: where updates come in another order, losses and scores are"
            f" others, so a replay has its seconds alone; {instead}"
        )
    if cluster is None or not (trace.resolved or {}).get("devices"):
        return
    own = trace.config["cluster"]
    if (own.get("devices") or []) != [asdict(device) for device in cluster.devices]:
        raise InputError(
            f"{trace.run_dir} went by the devices of cluster={own['name']}: with those of"
            f" cluster={cluster.name} losses and scores are others, so a replay has its seconds alone;"
            f" {instead}, or run it with that cluster"
        )
