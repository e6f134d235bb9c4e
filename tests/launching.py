"""Starting the command as a user does, and stopping it as one does; for tests of the launch path."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from harness.dev.conformance.pool import PRELOAD
from harness.results.reader import Trace
from tests import forker
from tests.graphs import edge_list, random_graph

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 90  # seconds that a slow machine may take over anything here

# A system that says how many threads it has, and fails as told: `how` at `epoch` on worker `rank`.
TROUBLE = """
import os, signal, threading, numba, torch
from dataclasses import dataclass
from harness.base.errors import InputError
from harness.core.system import System

@dataclass
class Trouble(System):
    how: str = "nothing"
    epoch: int = 3
    rank: int = 1

    def halo(self, layer, h):
        return self.comm.exchange(self.plan, h, layer)

    def before_epoch(self, epoch):
        self.recorder.metric("threads", torch.get_num_threads())
        if epoch == self.epoch and self.comm.rank == self.rank:
            if self.how == "raise":
                raise ZeroDivisionError("told to fail")
            if self.how == "refuse":
                raise InputError("trouble=1 is too much: give 0")
            if self.how == "hang":
                threading.Event().wait()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "crash":
                os.abort()
        if epoch == self.epoch and self.how == "compile":
            numba.njit(lambda x: x)(1)
"""
TROUBLE_YAML = "_target_: trouble.Trouble\nhow: nothing\nepoch: 3\nrank: 1\n"
# The systems themselves, which stand still in epoch 30 for as long as a file is there.
HELD = """
import os, time
from systems.digest import Digest
from systems.digest_a import DigestA
from systems.vanilla import Vanilla

class Held:
    def before_epoch(self, epoch):
        super().before_epoch(epoch)
        while epoch == 30 and os.path.exists(os.environ["HALOBENCH_HOLD"]):
            time.sleep(0.01)

class HeldVanilla(Held, Vanilla):
    pass

class HeldDigest(Held, Digest):
    pass

class HeldDigestA(Held, DigestA):
    pass
"""


def fresh_python(code: str, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that a new interpreter runs to its end, and what it printed."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE + 30,
    )


def write_graph(path: Path, num_vertices: int, seed: int = 3, **more: int) -> None:
    """A random graph as `dataset=npz` reads it; `more` is what `random_graph` takes."""
    graph = random_graph(num_vertices, 6, seed=seed, **more)
    arrays = {name: getattr(graph, name) for name in ("features", "labels", "train", "val", "test")}
    np.savez(path, edges=np.stack(edge_list(graph)), **arrays)


def losses(run_dir: Path) -> pd.DataFrame:
    """What two runs of the same settings have in common, to the bit."""
    return Trace(run_dir).epochs[
        ["epoch", "worker", "loss", "train_acc", "val_acc", "test_acc", "bytes_sent"]
    ]


class Place:
    """A folder with a small graph, results and cache of its own, from which `python -m harness` is run.

    Commands are forked from one process that has imported the command: each is a process of its own, in a
    session of its own, without the seconds that importing torch takes. `truly` starts one from scratch.
    """

    def __init__(self, folder: Path):
        self.folder, self.results = folder, folder / "results"
        self.graph = folder / "graph.npz"
        self.write_graph(60)
        (folder / "modules").mkdir()
        (folder / "modules" / "trouble.py").write_text(TROUBLE)
        (folder / "modules" / "held.py").write_text(HELD)
        self.hold = folder / "hold"
        (folder / "conf" / "system").mkdir(parents=True)
        (folder / "conf" / "system" / "trouble.yaml").write_text(TROUBLE_YAML)
        for name in ("vanilla", "digest", "digest_a"):
            yaml = (ROOT / "conf" / "system" / f"{name}.yaml").read_text()
            held = yaml.replace(f"systems.{name}.", "held.Held")
            (folder / "conf" / "system" / f"held_{name}.yaml").write_text(held)
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{folder / 'modules'}",
            "TMPDIR": str(folder),
            "COLUMNS": "300",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HALOBENCH_HOLD": str(self.hold),
        }
        self.more = f"hydra.searchpath=[file://{folder / 'conf'}]"
        self.trouble = (self.more, "system=trouble")
        self.going: Started | None = None
        for name in ("asked", "told"):
            os.mkfifo(folder / name)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOAD, "tests.jobs", "tests.forker"])
        self.forker = context.Process(target=forker.main, args=(folder, self.environment), daemon=True)
        self.forker.start()
        self.asked, self.told = (folder / "asked").open("w"), (folder / "told").open()

    def close(self) -> None:
        self.asked.close()
        self.forker.join(PATIENCE)

    def write_graph(self, num_vertices: int, seed: int = 3) -> None:
        write_graph(self.graph, num_vertices, seed)

    def derive(self, name: str, like: str, module: str) -> None:
        """A system of this place: class `Name` of this module, with the yaml of the system `like`."""
        (self.folder / "modules" / f"{name}.py").write_text(module)
        text = (ROOT / "conf" / "system" / f"{like}.yaml").read_text()
        own = re.sub("(?m)^_target_: .*", f"_target_: {name}.{name.title()}", text)
        (self.folder / "conf" / "system" / f"{name}.yaml").write_text(own)

    def mend(self, how: str) -> None:
        """The system `trouble` fails in this way no more."""
        mended = TROUBLE.replace(f'self.how == "{how}"', 'self.how == "never"')
        (self.folder / "modules" / "trouble.py").write_text(mended)

    def arguments(self, *overrides: str) -> list[str]:
        if overrides[:1] == ("runs",):
            return list(overrides)
        fixed = {
            "dataset": "npz",
            "dataset.path": self.graph,
            "results": self.results,
            "cache": self.folder / "cache",
            "workers": 2,
            "epochs": 6,
            "model.hidden": 4,
            "kernel": "numba",
            "threads": 1,
            "checkpoint_every": 2,
            "progress": "false",
        }
        given = {o.lstrip("+~").split("=")[0] for o in overrides}
        if "gpus" in given:
            fixed.pop("workers")
        flags = [o for o in overrides if o.startswith("-")]
        rest = [o for o in overrides if not o.startswith("-")]
        if "dataset" in given:
            fixed.pop("dataset.path")
        return [*rest, *(f"{k}={v}" for k, v in fixed.items() if k not in given), *flags]

    def start(self, *overrides: str) -> Started:
        self.going = Started(self, self.arguments(*overrides))
        return self.going

    def settle(self) -> None:
        """End what a failed test has left going on, and forget all results and what became of a module."""
        if self.going is not None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
                self.going.process.kill()
            self.going.end()
        self.hold.unlink(missing_ok=True)
        (self.folder / "modules" / "trouble.py").write_text(TROUBLE)
        shutil.rmtree(self.results, ignore_errors=True)

    def run(self, *overrides: str) -> Ended:
        return self.start(*overrides).end()

    def sweep(self, sweep: str, places, made=None) -> None:
        """In place of `runner.start`, which starts a command anew: that takes seconds."""
        ended = Started(self, ["-m", *sweep.split(), *places.overrides]).end()
        assert ended.code == 0, ended.err

    def truly(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def runs(self, pattern: str | None = None) -> list[Path]:
        return sorted(p.parent for p in self.results.glob(f"{pattern or f'{self.graph.stem}/*'}/config.yaml"))

    def goes_on_bit_for_bit(self, *command: str) -> None:
        """The command goes on with the one run that is here, and ends as a run that was never stopped."""
        (run_dir,) = self.runs()
        assert self.run(*command).code == 0
        assert Trace(run_dir).resolved["attempts"][-1]["first_epoch"] > 0, "it began anew, or elsewhere"
        resumed = losses(run_dir)
        again = self.run(*command, "fresh=true")
        assert again.code == 0 and f"{run_dir}.old1" in again.out
        pd.testing.assert_frame_equal(resumed, losses(run_dir), check_exact=True)


@dataclass
class Ended:
    """An exit code (minus a signal's number where one killed it) and what was printed."""

    code: int
    out: str
    err: str


class Started:
    """A command that is going on."""

    def __init__(self, place: Place, arguments: list[str]):
        self.place, self.family = place, []
        self.out, self.err = (place.folder / f"{name}-{time.monotonic_ns()}" for name in ("out", "err"))
        print(json.dumps([arguments, str(self.out), str(self.err)]), file=place.asked, flush=True)
        self.process = psutil.Process(int(place.told.readline()))
        print("seen", file=place.asked, flush=True)

    def until(self, condition) -> None:
        """Return once condition() holds; fail where the command ends before, or never."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            try:
                self.process.wait(0.02)
            except psutil.TimeoutExpired:
                assert time.monotonic() < deadline, self.err.read_text()
                continue
            assert condition(), f"the command ended early: {self.err.read_text()}"

    def until_epoch(self, epoch: int) -> None:
        """Return once a checkpoint from which `epoch` or a later one goes on is complete; notes who is
        there.
        """
        self.until(
            lambda: any(
                int(p.read_text()) >= epoch for p in self.place.results.glob("*/*/checkpoints/latest")
            )
        )
        self.family = self.process.children(recursive=True)

    def told(self) -> str:
        """What it has printed on stderr so far."""
        return self.err.read_text() if self.err.exists() else ""

    def end(self) -> Ended:
        if not select.select([self.place.told], [], [], 10 * PATIENCE)[0]:
            raise AssertionError(f"the command does not end: {self.told()}")
        code = int(self.place.told.readline())
        self.place.going = None
        return Ended(code, self.out.read_text(), self.err.read_text())

    def interrupt(self) -> None:
        """Ctrl-C as the terminal gives it: to every process of the command."""
        os.killpg(self.process.pid, signal.SIGINT)

    def survivors(self) -> list[psutil.Process]:
        """Those of the family that are left; the dead are given the time that the kernel needs."""
        return psutil.wait_procs(self.family, timeout=10)[1]
