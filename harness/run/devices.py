"""What the workers of a run run on: the devices its cluster names, or their own, measured once."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from pathlib import Path

import torch

from harness.check import InputError
from harness.cluster.config import GIB, Cluster, Device
from harness.cluster.measure import host_memory, measure, pooled
from harness.comm.comm import Comm
from harness.run.config import Run
from harness.trace import files


def cluster_of(run: Run, run_dir: Path, comm: Comm) -> Cluster | None:
    """The run's cluster with a device for each worker; None where it names none and the system asks for none.

    Measured devices are kept in the run folder, so that a resumed run goes on with the values that it began
    with.
    """
    if not run.cluster.measured:
        return run.cluster.with_devices(run.cluster.devices[: comm.size])
    if not run.system.needs_devices():
        return None
    path = run_dir / "devices.json"
    there = comm.total([path.exists()])[0] == comm.size
    if not there:
        own = _tell({"host": socket.gethostname(), "memory_gb": host_memory() / GIB}, comm)
        names = list(dict.fromkeys(each["host"] for each in own))
        sharing = int(os.environ.get("LOCAL_WORLD_SIZE", comm.size))
        device = measure(comm.device, names.index(socket.gethostname()), sharing)
        devices = pooled([Device(**each) for each in _tell(dataclasses.asdict(device), comm)])
        if comm.rank == 0:
            least = min(each["memory_gb"] for each in own)
            files.write_json_atomic(
                path, {"devices": [dataclasses.asdict(d) for d in devices], "host_memory_gb": least}
            )
        comm.barrier()
    try:
        kept = files.read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); give fresh=true to start the run anew") from None
    return dataclasses.replace(
        run.cluster,
        devices=[Device(**each) for each in kept["devices"]],
        host_memory_gb=run.cluster.host_memory_gb or kept["host_memory_gb"],
    )


def _tell(value: dict, comm: Comm) -> list[dict]:
    """Every worker's value, in rank order."""
    text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=comm.device)
    return [json.loads(bytes(part.tolist())) for part in comm.all_gather(text, -1, "devices")]
