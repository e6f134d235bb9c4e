"""What is done to a command that is going on, and to what a stopped one left; then the same command again."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.launching import Ended, Place, losses
from tests.test_bounds import changed
from tests.torture.given import drawn
from tests.torture.impostor import Impostor
from tests.torture.stranger import Stranger
from tests.torture.tally import REFUSED, SAME, VALID, Tally, damage, is_sentence
from tests.torture.watched import LONGEST

# Each with memory of its own: caches, stores, servers, or none.
SYSTEMS = (
    ("system=vanilla",),
    ("system=sancus", "system.staleness=variation_gap", "system.bound=0.05"),
    ("system=digest", "system.interval=2"),
    ("system=digest_a", "system.order=rotation", "system.interval=2"),
    ("system=pscgcn",),
    ("system=cdfgnn", "partition=ebv"),
)
NO_THREAD = "cannot allocate memory for thread-local data: ABORT\n"  # the C library's own last words
LENGTH = ("epochs=120", "checkpoint_every=7", "model.layers=3")
WRITTEN = {
    "checkpoint": ("checkpoints/epoch-*/worker-*.pt", "checkpoints/latest", "checkpoints/attempts"),
    "config of a stopped run": ("config.yaml",),
    "JSON of a stopped run": ("shards.json", "resolved.json", "environment.json"),
    "trace of a stopped run": ("stream/*.arrow",),
}
CACHED = {
    "cached shard": ("shards/*/worker-*.safetensors", "shards/*/stats.json", "shards/*/spec.json"),
    "cached graph": ("graphs/*/*.safetensors", "graphs/*/*.json"),
}
# Keys that say where a command writes: what they are given is its place.
PLACES = ("results", "cache", "data_dir", "run_dir")


class Commands:
    """Rounds against one place; what a whole run comes to is computed once per system."""

    def __init__(self, place: Place, tally: Tally, draw: random.Random):
        self.place, self.tally, self.draw = place, tally, draw
        self.whole: dict[tuple[str, ...], tuple[object, float]] = {}

    def _command(self, *more: str) -> tuple[str, ...]:
        """A system drawn, whose whole run is known, and no run of it left."""
        command = (*self.draw.choice(SYSTEMS), *LENGTH, *more)
        self.place.settle()
        if command not in self.whole:
            began = time.monotonic()
            done = self.place.run(*command)
            assert done.code == 0, f"{command}: {done.err}"
            self.whole[command] = losses(self._run_dir()), time.monotonic() - began
            self.place.settle()
        return command

    def _run_dir(self) -> Path:
        (found,) = self.place.runs()
        return found

    def _again(self, what: str, command: tuple[str, ...], how: str, ended: Ended) -> None:
        """The same command goes on to the bits of the whole run."""
        if "Traceback" in ended.err:
            return self.tally.note(what, None, f"{how}: {ended.err}")
        done = self.place.run(*command)
        if done.code != 0 or "Traceback" in done.err:
            return self.tally.note(what, None, f"{how}, then: {done.code} {done.err}")
        same = losses(self._run_dir()).equals(self.whole[command][0])
        self.tally.note(what, SAME if same else None, f"{how}: other bits, of {' '.join(command)}")

    def _at_a_moment(self, command: tuple[str, ...]):
        """The command, started, and a moment of it that is drawn; None where it has ended by then."""
        run = self.place.start(*command)
        moment = self.draw.random() * 1.1 * self.whole[command][1]
        with contextlib.suppress(psutil.TimeoutExpired):
            run.process.wait(moment)
            return run, None, moment
        family = [run.process, *run.process.children(recursive=True)]
        return run, family, moment

    def killed(self) -> None:
        """SIGKILL to the launcher, a worker, or what one of them started."""
        command = self._command()
        run, family, moment = self._at_a_moment(command)
        victim = self.draw.choice(family) if family else None
        with contextlib.suppress(psutil.Error):
            if victim is not None:
                victim.kill()
        ended = run.end()
        left = psutil.wait_procs(family or [], timeout=10)[1]
        if left:
            return self.tally.note("process killed", None, f"after {moment:.2f} s: left {left}")
        self._again("process killed", command, f"killed after {moment:.2f} s", ended)

    def signalled(self) -> None:
        """A signal that asks the launcher to stop."""
        command = self._command()
        run, family, moment = self._at_a_moment(command)
        number = self.draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        with contextlib.suppress(psutil.Error):
            if family:
                run.process.send_signal(number)
        ended = run.end()
        left = psutil.wait_procs(family or [], timeout=10)[1]
        how = f"{number.name} after {moment:.2f} s"
        # Before the program has a handler the kernel ends it, and after the run nothing is left to stop.
        if left or ended.code not in (0, 128 + number, -number):
            return self.tally.note("stopped by a signal", None, f"{how}: {ended} left {left}")
        self._again("stopped by a signal", command, how, ended)

    def frozen(self) -> None:
        """A worker, or what it started, that stands still for a while; or until the launcher is killed."""
        command = self._command()
        run, family, moment = self._at_a_moment(command)
        for victim in self.draw.sample(family[1:], 1) if family and family[1:] else ():
            with contextlib.suppress(psutil.Error):
                victim.suspend()
                time.sleep(self.draw.random())
                if self.draw.random() < 0.5:
                    victim.resume()
                else:
                    run.process.kill()
        ended = run.end()
        left = psutil.wait_procs(family or [], timeout=10)[1]
        # One that was frozen before it could ask the kernel to end it with its launcher ends when it goes on.
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.resume()
        left = psutil.wait_procs(left, timeout=10)[1]
        if left:
            return self.tally.note("process frozen", None, f"after {moment:.2f} s: left {left}")
        self._again("process frozen", command, f"frozen after {moment:.2f} s", ended)

    def impostor(self) -> None:
        """Somebody else who connects to the run's ports and sends junk, over either transport."""
        command = self._command(f"transport={self.draw.choice(('memory', 'sockets'))}", "rendezvous=10")
        run = self.place.start(*command)
        with Impostor(run.process, self.draw) as other:
            ended = run.end()
        how = f"{other.reached} connections, {command[-2]}"
        if ended.code and (ended.code != 2 or not is_sentence(ended.err)):
            return self.tally.note("impostor", None, f"{how}: {ended.code} {ended.err}")
        self._again("impostor", command, how, ended)

    def full(self) -> None:
        """A disk of a size that is drawn; then it grows."""
        command = self._command()
        disk = self.place.results
        size = int(2 ** self.draw.uniform(13, 19.5))
        with _mounted(disk, size) as grow:
            if grow is None:
                return
            first = self.place.run(*command)
            if first.code == 0:
                same = losses(self._run_dir()).equals(self.whole[command][0])
                return self.tally.note("full disk", SAME if same else None, "other bits")
            if first.code != 2 or not is_sentence(first.err):
                return self.tally.note("full disk", None, f"{size} bytes: {first.code} {first.err}")
            grow()
            self._again("full disk", command, f"{size} bytes", first)

    def limited(self) -> None:
        """A process of the run that may have no more memory, open files or large files from a moment on."""
        command = self._command()
        run, family, moment = self._at_a_moment(command)
        kind, how = self.draw.choice(("AS", "NOFILE", "FSIZE")), ""
        if family:
            with contextlib.suppress(psutil.Error):
                victim = self.draw.choice(family)
                most = {
                    "AS": victim.memory_info().vms + int(2 ** self.draw.uniform(12, 29)),
                    "NOFILE": victim.num_fds() + self.draw.randrange(12),
                    "FSIZE": int(2 ** self.draw.uniform(10, 16)),
                }[kind]
                victim.rlimit(getattr(psutil, f"RLIMIT_{kind}"), (most, most))
                how = f"{kind} {most} of {'the launcher' if victim == run.process else 'a worker'}"
        ended = run.end()
        how += f" after {moment:.2f} s"
        if ended.code and not is_sentence(ended.err.replace(NO_THREAD, "")):
            return self.tally.note("resource limit", None, f"{how}: {ended.code} {ended.err}")
        self._again("resource limit", command, how, ended)

    def stranger(self) -> None:
        """Somebody in the store of a run whose workers start by themselves, as under SLURM."""
        command = self._command("rendezvous=90", "patience=90")
        assert self.place.run(*command, "launch=prepare").code == 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        words = [sys.executable, "-m", "harness.run.worker", str(self._run_dir())]
        workers = [
            subprocess.Popen(
                words,
                env={**self.place.environment, **place, "RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            with Stranger(port, self.draw) as other:
                said = [worker.communicate(timeout=LONGEST)[1] for worker in workers]
        except subprocess.TimeoutExpired as error:
            return self.tally.note("stranger in the store", None, f"{other.keys}: {error}")
        finally:
            for worker in workers:
                worker.kill()
        how = f"{other.written} times {' '.join(other.keys)}"
        for worker, told in zip(workers, said):
            # Torch may say beside it where in C++ it lost the store.
            if "Traceback" in told or bool(worker.returncode) != told.count("error: "):
                return self.tally.note("stranger in the store", None, f"{how}: {worker.returncode} {told}")
        ended = Ended(max(abs(worker.returncode) for worker in workers), "", "".join(said))
        self._again("stranger in the store", command, how, ended)

    def argued(self) -> None:
        """A key with any value: it is refused in one sentence, or the run is prepared."""
        self.place.settle()
        given = [each for each in drawn(changed(), self.draw) if each[2] not in PLACES]
        _, system, key, value = self.draw.choice(given)
        word = f"{key}={json.dumps(value)}"
        done = self.place.run(f"system={system}", word, *(["launch=prepare"] * (key != "launch")))
        outcome = VALID if done.code == 0 else REFUSED if done.code == 2 and is_sentence(done.err) else None
        self.tally.note(
            "value of a key, a command", outcome, f"system={system} {word}: {done.code} {done.err}"
        )

    def damaged(self) -> None:
        """A file of a stopped run, or of the cache it trains on."""
        command = (*self.place.trouble, "system.how=kill", "system.epoch=5")
        module, cache = self.place.folder / "modules" / "trouble.py", self.place.folder / "cache"
        kept = self.place.folder / "kept"
        kills = module.read_text()
        never = kills.replace('self.how == "kill"', 'self.how == "never"')
        self.place.settle()
        if not kept.exists():
            assert self.place.run(*command).code == 128 + signal.SIGKILL
            shutil.copytree(self._run_dir(), kept / "run" / self._run_dir().name)
            shutil.copytree(cache, kept / "cache")
        run_dir = self._stopped(kept)
        module.write_text(never)
        try:
            if command not in self.whole:
                assert self.place.run(*command).code == 0
                self.whole[command] = losses(self._run_dir()), 0.0
                run_dir = self._stopped(kept)
            what, patterns = self.draw.choice(sorted({**WRITTEN, **CACHED}.items()))
            within = cache if what in CACHED else run_dir
            found = sorted(path for pattern in patterns for path in within.glob(pattern))
            how = damage(self.draw.choice(found), found, self.draw)
            done = self.place.run(*command)
            if done.code == 2 and is_sentence(done.err):
                self.tally.note(what, REFUSED)
            elif done.code == 0 and "Traceback" not in done.err:
                same = losses(self._run_dir()).equals(self.whole[command][0])
                self.tally.note(what, SAME if same else None, f"{how}: other bits")
            else:
                self.tally.note(what, None, f"{how}: {done.code} {done.err}")
        finally:
            module.write_text(kills)

    def _stopped(self, kept: Path) -> Path:
        """The run's folder and the cache as they were when it was stopped."""
        (stopped,) = (kept / "run").iterdir()
        run_dir, cache = (
            self.place.results / self.place.graph.stem / stopped.name,
            self.place.folder / "cache",
        )
        shutil.rmtree(self.place.results, ignore_errors=True)
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(stopped, run_dir)
        shutil.copytree(kept / "cache", cache)
        return run_dir


@contextlib.contextmanager
def _mounted(folder: Path, size: int) -> Iterator[object]:
    """A disk in memory of so many bytes, and what makes it larger; None where one may not mount."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(options, capture_output=True).returncode:
        yield None
        return
    try:
        yield lambda: subprocess.run(
            ["mount", "-o", "remount,size=64m", str(folder)], check=True, capture_output=True
        )
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
