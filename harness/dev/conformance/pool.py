"""A pool of worker processes, started once per session, to which tests send work."""

import contextlib
import multiprocessing
import traceback
from collections.abc import Sequence
from typing import Any

from harness.base.compiling import take_turns
from harness.base.scratch import scratch

SIZE = 4
RENDEZVOUS = 120.0  # seconds after which a worker that the others wait for is taken for lost
MEMORY = "memory"
PRELOAD = ("harness.dev.conformance.runs", "harness.run.preload")


class WorkerPool:
    """`run(job, size, *args)` calls job(comm, *args) on `size` workers in a real group and returns their
    results.

    Workers meet once for each size and transport, and again after a job that failed: to meet takes as long as
    a small job. `preload` names modules that the processes have imported before the first job. `start` is
    how multiprocessing starts the processes.
    """

    def __init__(self, size: int = SIZE, preload: Sequence[str] = (), start: str = "forkserver"):
        # Forked from a process that has imported everything and done nothing: the test process has run
        # threads of its own.
        context: Any = multiprocessing.get_context(start)
        context.set_forkserver_preload([*PRELOAD, *preload])
        self.pipes, self.processes = [], []
        for _ in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)
        self.ending = contextlib.ExitStack()
        self.scratch = self.ending.enter_context(scratch())
        self.meetings = 0
        self.forget()

    def forget(self) -> None:
        """Let workers meet anew before the next job."""
        self.sharing: set[int] = set()  # sizes of groups that share memory
        self.connected: int | None = None  # the size of the group whose sockets are open

    def run(self, job, size: int, *args, per_worker: list | None = None, transport: str = MEMORY) -> list:
        """Results by rank. `per_worker[rank]` is appended to the arguments of each worker."""
        # Workers need to meet for the first job of a size over shared memory, and over sockets whenever the
        # size has changed.
        meeting = None
        if size > 1 and (size not in self.sharing if transport == MEMORY else size != self.connected):
            self.meetings += 1
            meeting = str(self.scratch / f"store-{self.meetings}")
            if transport == MEMORY:
                self.sharing.add(size)
            else:
                self.connected = size
        for rank, pipe in enumerate(self.pipes[:size]):
            own = (per_worker[rank],) if per_worker is not None else ()
            pipe.send((job, rank, size, meeting, transport, (*args, *own)))
        answers = [pipe.recv() for pipe in self.pipes[:size]]
        failed = [f"worker {rank} failed:\n{value}" for rank, (ok, value) in enumerate(answers) if not ok]
        if failed:
            self.forget()
            # PeerLost only follows from another failure: it is sorted first, so that the cause stands last,
            # where it is read.
            raise AssertionError("\n".join(sorted(failed, key=lambda text: "PeerLost" not in text)))
        return [value for _, value in answers]

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            with contextlib.suppress(BrokenPipeError):  # its worker has ended, as by Ctrl-C
                pipe.send(None)
        for process in self.processes:
            process.join(timeout=10)
        self.ending.close()


def _serve(pipe) -> None:
    import torch

    from harness.comm.comm import Comm
    from harness.comm.group import process_group
    from harness.comm.meeting import Meeting
    from harness.comm.members import WorkerPlace
    from harness.comm.recorder import Recorder
    from harness.comm.transport import ALONE, Transport

    torch.set_num_threads(1)
    take_turns()
    cpu = torch.device("cpu")
    sharing: dict[int, Transport] = {}
    sockets: Transport = ALONE
    with contextlib.ExitStack() as memory, contextlib.ExitStack() as group:
        while (message := pipe.recv()) is not None:
            job, rank, size, meeting, transport, args = message
            try:
                met = Meeting(rank, size, meeting, RENDEZVOUS) if meeting else None
                seat = WorkerPlace.on_cpu(rank, size)
                if met and transport == MEMORY:
                    sharing[size] = memory.enter_context(process_group(met, seat, transport))
                elif met:
                    group.close()
                    sockets = group.enter_context(process_group(met, seat, transport))
                carrier = ALONE if size == 1 else sharing[size] if transport == MEMORY else sockets
                answer = (True, job(Comm(rank, size, cpu, Recorder(), carrier), *args))
            except BaseException:
                answer = (False, traceback.format_exc())
                group.close()  # whoever waits for this worker is told
                memory.close()
                sharing.clear()
            pipe.send(answer)
