"""`engine=simgrid`: the same program, platform and messages, timed by SimGrid instead of by our own engine.

SimGrid's model CM02 shares links by max-min fairness as `harness.replay.flows` does, where the paths that
meet on a link have equal latencies (it weights flows by their latency). `harness.replay.simgrid_program` runs
it in a process of the interpreter that has SimGrid's Python module: the harness's packages and that module
never meet in one process.

What travels to that process is `_given`; what comes back are the moments that make a `Timeline`.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.check import InputError
from harness.replay.collectives import Message, Shapes, messages, on_links
from harness.replay.engine import ALONE, Going, Segment, Sent, Timeline
from harness.replay.platform import Platform
from harness.replay.program import Aside, Begin, Operation, Post, Program, Step, Take, Wait, Work

PROGRAM = Path(__file__).with_name("simgrid_program.py")
# Neither this folder, whose platform.py would be taken for Python's own, nor PYTHONPATH is searched.
ALONE_THERE = ("-I",)
INTERPRETER = "HALOBENCH_SIMGRID"  # names the interpreter that has the module
MODELS = {
    # Without a share for acknowledgements, a bound by TCP's window, and weights by 1 / bandwidth.
    "CM02": [
        "network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0",
    ],
    "default": [],
}  # fmt: skip


@functools.cache
def interpreter() -> str:
    """Of the interpreters tried, the first that has SimGrid's module. InputError where none has."""
    named = os.environ.get(INTERPRETER)
    tried = [named] if named else [sys.executable, "/usr/bin/python3"]
    for each in tried:
        try:
            found = subprocess.run([each, *ALONE_THERE, "-c", "import simgrid"], capture_output=True)
        except OSError:
            continue
        if found.returncode == 0:
            return each
    raise InputError(
        f"engine=simgrid needs SimGrid's Python module, which {' and '.join(tried)} lack: install Debian's"
        f" python3-simgrid, or name an interpreter that has it by {INTERPRETER}, or give engine=own"
    )


def simulate(
    program: Program, platform: Platform, shapes: Shapes | None = None, model: str = "CM02"
) -> Timeline:
    """What `harness.replay.engine.simulate` gives, by SimGrid. InputError where its module is not there, or
    workers wait for what never comes.

    model   "CM02", whose options make it the one that ours is; "default": SimGrid's own
    """
    if program.beside:
        raise InputError(
            "engine=simgrid knows no threads that make mini-batches beside the training: give engine=own"
        )
    if program.clock == "cpu" and platform.shared:
        raise InputError(
            f"engine=simgrid shares no cores, and cluster={platform.name} has {platform.cores:g} for more"
            " threads: give engine=own"
        )
    made = [
        on_links(operation, platform, messages(operation, program.workers, shapes or Shapes()))
        for operation in program.operations
    ]
    given = _given(program, platform, made)
    given["options"] = [f"--cfg={option}" for option in MODELS[model]]
    done = subprocess.run(
        [interpreter(), *ALONE_THERE, str(PROGRAM)], input=json.dumps(given), capture_output=True, text=True
    )
    found = json.loads(done.stdout) if done.returncode == 0 and done.stdout else None
    if found is None or not all(found["over"]):
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(
            "engine=simgrid did not come to the end of the program (a worker waits for what never comes, or"
            f" SimGrid failed: {said}); engine=own says which worker"
        )
    return _timeline(program, platform, made, found)


def _given(program: Program, platform: Platform, made: Sequence[Sequence[Message]]) -> dict[str, Any]:
    pairs = {(message.source, message.target) for each in made for message in each}
    paths = {pair: platform.path(*pair) for pair in sorted(pairs)}
    return {
        "places": program.workers + 1,  # and the server
        "meet": program.updates is None,
        "capacity": platform.capacity,
        "paths": [[a, b, list(path.links), path.latency] for (a, b), path in paths.items()],
        "steps": [[_step(s) for s in steps if not isinstance(s, Aside)] for steps in program.steps],
        "operations": [
            {
                "members": sorted(operation.parts),
                "messages": [
                    {
                        "source": message.source,
                        "target": message.target,
                        "size": message.size,
                        "after": list(message.after),
                        "along": message.along,
                        "posts": sorted(_posts(operation, message, platform.eager)),
                    }
                    for message in each
                ],
            }
            for operation, each in zip(program.operations, made)
        ],
    }


def _posts(operation: Operation, message: Message, eager: bool) -> set[int]:
    """Workers that must have posted before the message can leave."""
    if operation.route in ALONE:
        return {message.source, message.target} & operation.parts.keys()
    return {message.source} if eager else {message.source, message.target}


def _step(step: Step) -> list[Any]:
    if isinstance(step, Begin):
        return ["begin", step.late]
    if isinstance(step, Work):
        return ["work", step.seconds]
    assert not isinstance(step, Take | Aside)
    return ["post", step.operation] if isinstance(step, Post) else ["wait", step.operation, step.tail]


def _timeline(
    program: Program, platform: Platform, made: Sequence[Sequence[Message]], found: dict[str, Any]
) -> Timeline:
    segments: list[list[list[Segment]]] = []
    for steps, spans in zip(program.steps, found["spans"]):
        of_worker: list[list[Segment]] = []
        moments = iter(spans)
        for step in steps:
            if isinstance(step, Begin):
                of_worker.append([])
            elif isinstance(step, Work):
                start, end = next(moments)
                of_worker[-1].append(
                    Segment(step.kind, step.name, step.layer, start, end, -1, step.flops, step.seconds)
                )
            elif isinstance(step, Wait):
                number = -1 if step.operation is None else step.operation
                start, end = next(moments)
                of_worker[-1].append(Segment("wait", step.name, step.layer, start, end, number))
        segments.append(of_worker)
    going = {}
    for key, posted in found["posted"].items():
        number = int(key)
        sent = [
            Sent(message, 0, ready, cause, True, True, True)
            for message, (ready, cause) in zip(made[number], found["ready"][key])
        ]
        posted, done, last = (
            {int(w): value for w, value in each.items()}
            for each in (posted, found["done"][key], found["last"][key])
        )
        going[number] = Going(
            program.operations[number], sent, {}, {}, {}, posted=posted, done=done, last=last
        )
    return Timeline(program, platform, going, segments, found["begins"])
