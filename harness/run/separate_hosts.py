"""Runs whose hosts do not share a file system. The run folder and the shards are on worker 0's host; the
other hosts get copies of what their workers read, and give back what their workers traced.

A copy holds the small files that describe the run, and the shards of the host's workers. Each worker writes
its trace and its checkpoints into its host's copy. The traces are copied to worker 0's host when the run
ends. Checkpoints stay on the host whose workers wrote them, and the run goes on from them there."""

import contextlib
import json
import os
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harness.base import disk
from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.meeting import Meeting
from harness.data.partition import io
from harness.data.partition.cache import check_file
from harness.results import files
from harness.results.reader import STREAM
from harness.run import config as configs

# The files of a run folder that every worker reads before the workers form a group (DESCRIBING). LATEST is
# there only where the run goes on from a checkpoint.
LATEST = "checkpoints/latest"
SHARDS = "shards"  # the folder of shards inside a copy
DESCRIBING = ("config.yaml", "shards.json", "environment.json", "resolved.json", "devices.json", LATEST)
SPEC = f"{SHARDS}/spec.json"
LARGEST = 1 << 22  # most characters of such a file; a config has 2 kB, a file for hundreds of workers 100 kB
COPY = "copy-of-worker-0"  # the file that marks a folder as made here
CHUNK = 1 << 24  # bytes of a file that travel at a time


def describe(meeting: Meeting, host: str, run_dir: Path) -> tuple[list[bool], str]:
    """Bring what describes the run to the hosts that do not see worker 0's `run_dir`. Collective.

    host   the name of this worker's host (`harness.comm.members.host_name`)

    Returns [P] whether each worker sees that folder, and why this worker cannot take part ("" where it can).
    """
    # Worker 0 reads the files and leaves a file with a random name; who finds that file sees the folder.
    wrong, token, described = "", f".seen-{uuid.uuid4().hex}", {}
    if meeting.rank == 0:
        try:
            described = {n: (run_dir / n).read_text() for n in DESCRIBING if (run_dir / n).is_file()}
            described[SPEC] = (configs.shard_folder(run_dir) / "spec.json").read_text()
            (run_dir / token).touch()
        except InputError as error:
            wrong = str(error)
        except OSError as error:
            wrong = f'RUN_DIR="{run_dir}" cannot be used ({error.strerror}); prepare it, or give another'
    # Where worker 0 has no folder to show, all workers return here. They learn why when the workers next tell
    # each other what is wrong.
    own = token
    try:
        token, shown = meeting.tell("folder", [own, not wrong])[0]
        if not shown:
            return [True] * meeting.size, wrong
        told = meeting.tell("sees", [host, (run_dir / token).exists()])
    finally:
        if meeting.rank == 0:
            (run_dir / own).unlink(missing_ok=True)
    sees = [there for _, there in told]
    if all(sees):
        return sees, ""
    # Worker 0's files go to all; on each host without the folder the worker of lowest rank writes them.
    described = meeting.tell("describing", described)[0]
    blind = [k for k, (name, there) in enumerate(told) if name == host and not there]
    if meeting.rank in blind[:1]:
        try:
            _write(run_dir, described)
        except InputError as error:
            wrong = str(error)
        except OSError as error:
            wrong = f'RUN_DIR="{run_dir}" cannot be written ({error.strerror}); give a folder that can be'
    meeting.tell("described", None)  # its neighbours read the files, so they wait until they are written
    return sees, wrong


def _write(run_dir: Path, described: dict[str, str]) -> None:
    """Lay out a copy. InputError where the folder holds another run or a link, or `described` is no run's."""
    _check(described)
    # Through a link that another user or an earlier run left there, files elsewhere would be written.
    if link := disk.link_in(run_dir):
        raise InputError(f"{_refuses(link)}, which is a link; remove it, or give a folder that is not there")
    there = run_dir / "config.yaml"
    if there.exists():
        if there.read_text() != described["config.yaml"]:
            raise InputError(
                f'RUN_DIR="{run_dir}" holds another run on this host than on that of worker 0; give a folder'
                " that does not exist here"
            )
    elif run_dir.exists() and any(run_dir.iterdir()):
        raise InputError(
            f'RUN_DIR="{run_dir}" holds files that are no run\'s; give a folder that is not there'
        )
    else:
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / COPY).touch()
    if LATEST not in described:  # the run begins anew, so what an earlier start left here is removed
        for name in ("stream", "checkpoints"):
            disk.remove_tree(run_dir / name, ignore_errors=True)
        (run_dir / "devices.json").unlink(missing_ok=True)
    for name, text in described.items():
        (run_dir / name).parent.mkdir(exist_ok=True)
        files.write_text_atomic(run_dir / name, text)
    shards = files.read_json(run_dir / "shards.json")
    files.write_json_atomic(run_dir / "shards.json", {**shards, "folder": str((run_dir / SHARDS).resolve())})


def _check(described: dict[str, str]) -> None:
    """InputError where worker 0 sent a file that does not describe a run, or one that is too large."""
    for name, text in described.items():
        if name not in (*DESCRIBING, SPEC):
            raise InputError(
                f"{_refuses(name)} from worker 0: it is none of {', '.join((*DESCRIBING, SPEC))}; see who"
                " else has the secret of the run"
            )
        if len(text) > LARGEST:
            raise InputError(
                f"{_refuses(name)} from worker 0: it has {len(text)} characters, and such a file has at most"
                f" {LARGEST}; prepare the run again"
            )


def _refuses(name: object) -> str:
    return f'host {socket.gethostname()} does not write "{name}"'


def bring_shards(comm: Comm, run_dir: Path, sees: Sequence[bool]) -> None:
    """Copy its shard from worker 0's host to every worker that does not see worker 0's run folder and does
    not have its shard whole already. Collective."""
    folder = configs.shard_folder(run_dir)
    own = folder / io.shard_name(comm.rank)
    lacks = told(comm, not sees[comm.rank] and not _is_whole(own))
    for k in (k for k, lacking in enumerate(lacks) if lacking):
        _carry(comm, 0, k, folder / io.shard_name(k), own)
    if lacks[comm.rank]:
        check_file(folder, own.name)


def _is_whole(path: Path) -> bool:
    """Whether a shard is there with the checksum that worker 0's host says."""
    with contextlib.suppress(InputError):
        check_file(path.parent, path.name)
        return path.exists()
    return False


def take_back(comm: Comm, run_dir: Path, sees: Sequence[bool], hosts: Sequence[Sequence[int]]) -> None:
    """Copy the streams of workers on other hosts to worker 0's run folder. Collective; all workers must have
    closed their streams.

    hosts   ranks of the workers, host by host

    Raises InputError, on all workers alike, for a file whose name is not that of a stream."""
    first = [k for ranks in hosts for k in [k for k in ranks if not sees[k]][:1]]
    stream = run_dir / "stream"
    own = sorted(path.name for path in stream.glob("*.arrow")) if comm.rank in first else []
    for k, names in enumerate(told(comm, own)):
        for name in names:
            if not STREAM.fullmatch(name):
                raise InputError(
                    f'worker {k} wants to give back "{name}", which no worker traces; see its host'
                )
            _carry(comm, k, 0, stream / name, stream / name)


def forget(run_dir: Path, keep: bool) -> None:
    """Remove this host's copy of a run that has ended. With `keep`, and in a folder that was not made as a
    copy, only the streams are removed: the run can then be extended."""
    if keep or not (run_dir / COPY).exists():
        disk.remove_tree(run_dir / "stream", ignore_errors=True)
    else:
        disk.remove_tree(run_dir, ignore_errors=True)


def told(comm: Comm, value: Any) -> list[Any]:
    """[P] the value of every worker, by rank, as JSON gives it back. Collective."""
    text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=comm.device)
    return [json.loads(bytes(part.tolist())) for part in comm.all_gather(text, -1, "files")]


def _carry(comm: Comm, sender: int, receiver: int, source: Path, target: Path) -> None:
    """Copy a file from one worker's host to another's, CHUNK bytes at a time; it is there whole or not at
    all. Collective: every worker takes part in each exchange, and all but two send and receive nothing."""
    length = int(comm.total([source.stat().st_size if comm.rank == sender else 0])[0])
    part = target.with_name(target.name + ".part")
    reading = source.open("rb") if comm.rank == sender else None
    writing = None
    if comm.rank == receiver:
        target.parent.mkdir(parents=True, exist_ok=True)
        writing = disk.create(part)
    try:
        for at in range(0, length, CHUNK):
            count = min(CHUNK, length - at)
            send, receive = [0] * comm.size, [0] * comm.size
            rows = torch.empty(0, 1, dtype=torch.uint8, device=comm.device)
            if reading is not None:
                send[receiver] = count
                rows = torch.frombuffer(bytearray(reading.read(count)), dtype=torch.uint8)
                rows = rows[:, None].to(comm.device)
            if writing is not None:
                receive[sender] = count
            flight, arrived = comm.start_exchange(rows, send, receive, -1, "forward", "files")
            flight.wait()
            if writing is not None:
                writing.write(arrived.cpu().numpy().data)
    finally:
        for file in (reading, writing):
            if file is not None:
                file.close()
    if comm.rank == receiver:
        os.replace(part, target)
