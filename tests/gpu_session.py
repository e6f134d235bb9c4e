"""`make gpu`, or `python -m tests.gpu_session [PART ...] [--device cuda|cpu] [--out FOLDER]`: what is to be
measured and tested on a GPU. Each part takes some minutes; where a machine is lent for a few, run it part by
part.

    tests   those marked `gpu`: every system trains as on the CPU, is stopped and goes on
    bench   one worker's epoch beside PyG's, DGL's and its floor
    runs    an epoch of each system, two workers sharing the GPU
    scale   one worker on the synthetic Reddit at its own size

With `--device cpu` the same commands on small graphs, to see that they run. FOLDER gets the output of each
command, the bench's JSON, and `summary.md`: the commands, their exit codes, seconds and last lines."""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.commands import ROOT
from tests.systems import VARIANTS

HARNESS = (sys.executable, "-m", "harness")
SECONDS = {"tests": 420, "bench": 100, "runs": 60, "scale": 150}  # of a command, at most
LAST_WORDS = 15  # seconds that it then has to say where it was
LAST = 12  # lines of a command's output that the summary repeats, but for the table
OF_INTEREST = ("score", "sent", "time", "note")  # first words of lines that a run ends with


@dataclass
class Step:
    """A command of a part, and the name of the file that its output goes to."""

    part: str
    name: str
    words: tuple[str, ...]


def steps(device: str, out: Path) -> list[Step]:
    """Every command, in order. On the CPU graphs are small and nothing is slow."""
    real = device == "cuda"
    runs, scale = out / "runs", out / "scale"
    common = (f"device={device}", "evaluate.every=0", "progress=false", f"cache={out / 'cache'}")

    def train(system: str, *words: str) -> tuple[str, ...]:
        return (*HARNESS, "run", f"system={system}", "dataset=twin/reddit", *common, *words)

    size = f"dataset.scale={0.1 if real else 0.009}"
    epochs = f"epochs={20 if real else 3}"
    bench = ("bench", "--only", "gpu", "--device", device, *(() if real else ("--quick",)))
    whole = "dataset.scale=1" if real else "dataset.scale=0.02"
    pytest = (sys.executable, "-m", "pytest", "-m", "gpu", "-rs", "-n", "14" if real else "2")
    return [
        Step("tests", "tests", pytest),
        Step("bench", "bench", (*HARNESS, *bench, "--json", str(out / "gpu.json"))),
        *(
            Step("runs", f"run-{system}", train(system, "workers=2", size, epochs, f"results={runs}"))
            for system in sorted(VARIANTS)
        ),
        Step("runs", "table", (*HARNESS, "report", "table", str(runs))),
        Step("scale", "scale", train("vanilla", "workers=1", whole, epochs, f"results={scale}")),
    ]


def carry_out(step: Step, out: Path) -> str:
    """Run a step and keep what it says; returns its part of the summary."""
    began = time.monotonic()
    where = {"cwd": ROOT, "env": {**os.environ, "COLUMNS": "160"}}
    # What is itself in the background ignores the interrupt, and so would what it starts.
    heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        step.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=heeded, **where
    ) as done:
        try:
            said, _ = done.communicate(timeout=SECONDS[step.part])
            code = str(done.returncode)
        except subprocess.TimeoutExpired:
            done.send_signal(signal.SIGINT)  # of which pytest says what has failed so far
            try:
                said, _ = done.communicate(timeout=LAST_WORDS)
            except subprocess.TimeoutExpired:
                done.kill()
                said, _ = done.communicate()
            code = "none in time"
    (out / f"{step.name}.log").write_text(said)
    lines = [line.rstrip() for line in said.rstrip().splitlines()]
    if step.name.startswith("run-") and code == "0":
        lines = [line for line in lines if line.startswith(OF_INTEREST)] or lines
    last = lines if step.name == "table" else lines[-LAST:]
    shown = "\n".join(f"    {line}" for line in last)
    head = f"`{shlex.join(step.words).replace(sys.executable, 'python')}`"
    return f"{head}\n\nexit code {code}, {time.monotonic() - began:.1f} s\n\n{shown}\n"


def main(words: list[str] | None = None) -> int:
    """0 where every command ended with 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_session", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of tests, bench, runs, scale (default all)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "out")), metavar="FOLDER")
    asked = parser.parse_args(words)
    unknown = set(asked.parts) - SECONDS.keys()
    if unknown:
        parser.error(f"there is no part {min(unknown)}; parts are {', '.join(SECONDS)}")
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    told = [f"# A session on device={asked.device}\n"]
    for step in steps(asked.device, out):
        if asked.parts and step.part not in asked.parts:
            continue
        told.append(carry_out(step, out))
        print(told[-1], flush=True)
        (out / "summary.md").write_text("\n".join(told).replace(str(out), "OUT").replace(f"{ROOT}/", ""))
    return int(any("\nexit code 0, " not in part for part in told[1:]))


if __name__ == "__main__":
    sys.exit(main())
