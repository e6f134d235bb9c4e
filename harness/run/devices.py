"""The devices that the workers of a run run on: those that its cluster names, or their own, measured once."""

import dataclasses
from pathlib import Path

from harness.base.errors import InputError
from harness.base.machine import check_machine
from harness.comm.comm import Comm
from harness.comm.members import WorkerPlace
from harness.core.cluster import GIB, Cluster, Device
from harness.core.cluster_measure import host_memory, measure, pooled
from harness.results import files
from harness.run.config import Run
from harness.run.separate_hosts import told


def cluster_of(run: Run, run_dir: Path, comm: Comm, seat: WorkerPlace) -> Cluster | None:
    """The run's cluster with a device for each worker; None where the cluster names no devices and the system
    asks for none. Collective where devices are measured.

    Measured devices are kept in the run folder, so that a resumed run goes on with what it began with."""
    if not run.cluster.measured:
        return run.cluster.with_devices(run.cluster.devices[: comm.size])
    if not run.system.traits().devices:
        return None
    path = run_dir / "devices.json"
    there = comm.total([path.exists()])[0] == comm.size
    if not there:
        memory = told(comm, host_memory() / GIB)
        device = measure(comm.device, seat.hosts.index(seat.neighbours), seat.sharing)
        devices = pooled([Device(**each) for each in told(comm, dataclasses.asdict(device))])
        found = {"devices": [dataclasses.asdict(d) for d in devices], "host_memory_gb": min(memory)}
        if comm.rank == 0:
            files.write_json_atomic(path, found)
        comm.barrier()
        # Hosts that do not see worker 0's folder need the file too. One worker per host writes it, and only
        # where worker 0's file does not show, so that no two workers write one file at a time.
        if comm.rank == seat.neighbours[0] and not path.exists():
            files.write_json_atomic(path, found)
        comm.barrier()
    try:
        kept = files.read_json(path)
    except (OSError, ValueError) as error:
        check_machine(error, path)
        raise InputError(f"{path} is damaged ({error}); start the run anew with fresh=true") from None
    return dataclasses.replace(
        run.cluster,
        devices=[Device(**each) for each in kept["devices"]],
        host_memory_gb=run.cluster.host_memory_gb or kept["host_memory_gb"],
    )
