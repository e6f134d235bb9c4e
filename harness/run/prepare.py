"""Everything a run needs before a worker starts: the graph read, checked and partitioned, shards and folder.

The work is done in a forked child: the launcher itself must have run no threads when it forks its workers."""

import contextlib
import functools
import json
import multiprocessing
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import OmegaConf

from harness.base import disk
from harness.base.errors import InputError
from harness.base.machine import check_machine, limit_reached, out_of_memory
from harness.core.config import EvaluateConfig
from harness.core.context import RunFacts
from harness.core.cuts import check_cut
from harness.data.partition.cache import Cache, shards_for, took
from harness.results import files, resolved
from harness.results.environment import environment
from harness.results.reader import Trace
from harness.results.schema import LOCK
from harness.run import config as configs
from harness.run import products, progress, secret
from harness.run.config import Run
from harness.run.process import RunFailed, be_child, forking, killed, limit_memory


@contextlib.contextmanager
def locked(run_dir: Path, wait: bool = False, place: tuple[str, object] | None = None) -> Iterator[None]:
    """Lock a run folder for this process. InputError where another process has the lock, where the folder
    cannot be written, or where it holds a link, through which files elsewhere would be written.

    wait    where another process has the lock, say so and wait for it, instead of InputError
    place   the key of the config that says where the folder is, with its value
    """
    disk.refuse_links(run_dir)
    lock = FileLock(run_dir / LOCK)
    lacking = [folder for folder in run_dir.parents if not folder.exists()]
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            used = f"{run_dir} is in use: the same run is going on in another process"
            if not wait:
                raise InputError(f"{used}; wait for it to end") from None
            print(f"note: {used}; waiting for it to end", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        said, mend = str(run_dir), "let this user write there"
        if place:
            said, mend = f'{place[0]}="{place[1]}"', f"give {place[0]}=FOLDER that can be"
        raise InputError(f"{said} cannot be written ({error.strerror}); {mend}") from None
    try:
        yield
    finally:
        # A run that was refused before it wrote anything leaves no folder. Another process that wants the
        # folder meanwhile finds it in use, or makes it anew.
        with contextlib.suppress(OSError):
            if [path.name for path in run_dir.iterdir()] == [LOCK]:
                (run_dir / LOCK).unlink()
                for folder in (run_dir, *lacking):
                    folder.rmdir()
        lock.release()


PARTS = ("shards.json.part", "environment.json.part", "config.yaml.part", secret.FILE, secret.PART)


def prepare(run: Run) -> Path:
    """Make the shards (they are cached by content, so only once) and the run folder; returns that folder.
    Warns of knobs that were given and have no effect.

    Raises InputError where the data are bad, the system does not support the run, or the run was begun on
    other data."""
    check_cut(run.system, run.partition.cut, f"partition={run.partition.name} is")
    for sentence in run.system.traits().ineffective:
        warnings.warn(sentence, stacklevel=2)
    here = environment()
    folder, graph, measured = _in_child(_shards, run, resolved.machine(here))
    stats = json.loads((folder / "stats.json").read_text())
    check_supported(run, stats)
    run_dir = run.directory
    if _begun_on(run_dir) not in (None, graph):
        raise _changed(run_dir)
    files.write_json_atomic(
        run_dir / "shards.json",
        {"folder": str(folder.resolve()), "stats": {**stats, **took(folder)}, "graph": graph, **measured},
    )
    files.write_json_atomic(run_dir / "environment.json", {**here, "code": run.code})
    if run.settings.launch == "prepare":
        secret.make(run_dir)
    # Last, since a folder with a config is a run folder.
    files.write_yaml_atomic(run_dir / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(run.composed)))
    return run_dir


def check_supported(run: Run, stats: dict[str, Any]) -> None:
    """InputError where the system does not support the run; a warning where a key has no effect on the graph.

    stats   statistics of the graph and its partition (stats.json)
    """
    traits = run.system.traits()
    facts = RunFacts(
        model=run.model.name,
        matrix=run.model.matrix,
        layers=run.model.layers,
        norm=run.model.norm,
        input_dropout=run.model.input_dropout,
        patience=run.evaluate.patience,
        wire=run.settings.wire,
        num_workers=run.settings.workers,
        symmetric=stats["symmetric"],
        multilabel=stats["multilabel"],
        optimiser=run.optimiser,
        scheduled=run.scheduled,
        weighted=stats.get("weighted", False),
        rows=run.settings.rows or traits.rows,
        combine=type(run.combine or traits.combine).__name__.lower(),
        fewer_rows=run.model.fewer_rows,
        features_wire=run.settings.features_wire or traits.features_wire,
        labels=run.labels is not None,
    )
    reason = run.system.supports(facts)
    if reason:
        raise InputError(f"system: {reason}")
    if run.evaluate.patience and (stats.get("majority") or {"val": 0})["val"] is None:
        raise InputError(
            f"evaluate.patience={run.evaluate.patience} goes by the validation score, and the graph has no"
            " validation vertices; give evaluate.patience=0"
        )
    if run.evaluate.threshold != EvaluateConfig.threshold and not stats["multilabel"]:
        warnings.warn(
            f"evaluate.threshold={run.evaluate.threshold} has no effect: every vertex has one label",
            stacklevel=2,
        )


def other_code(run: Run) -> str | None:
    """One sentence where code other than this program's computed any part of what is in the run's folder, or
    where the graph has changed since and its dataset notes that (`changed_note`); else None."""
    if not (run.directory / "config.yaml").exists():
        return None
    found = resolved.read(run.directory)
    attempts = [each.get("code") or "unknown" for each in found["attempts"]] if found else []
    now = run.code
    others = [code for code in dict.fromkeys(attempts) if code != now]
    said = " and ".join("unknown code" if code == "unknown" else f"code {code}" for code in others)
    said = f"computed by {said}; this is code {now}" if others else ""
    if run.dataset.changed_note and _begun_on(run.directory) not in (None, fingerprint(run)):
        said = f"{said or 'computed'}, on {run.dataset.changed_note}"
    return said or None


def _has_begun(run_dir: Path) -> bool:
    """Whether a worker has traced anything."""
    return (run_dir / "epochs.parquet").exists() or any((run_dir / "stream").glob("epochs-*.arrow"))


def is_finished(run: Run) -> bool:
    """Whether the folder holds the run's results. InputError where it holds another run, or where the graph
    has changed since and its dataset refuses that."""
    run_dir = run.directory
    _check_folder(run)
    if not (run_dir / "config.yaml").exists() or not Trace(run_dir).finished:
        return False
    changed = False
    if run.dataset.refuses_changed:
        begun = _begun_on(run_dir)
        with contextlib.suppress(InputError):  # the graph's files may be gone
            changed = begun not in (None, fingerprint(run))
    if changed:
        raise _changed(run_dir)
    return True


def anew(run: Run) -> bool:
    """Whether what the run's folder holds is to be set aside."""
    return run.settings.fresh or (run.settings.stale == "rerun" and other_code(run) is not None)


@contextlib.contextmanager
def claimed(run: Run, wait: bool = False) -> Iterator[None]:
    """Lock the run's folder for this process. Under `fresh`, and under `stale=rerun` where other code
    computed what the folder holds, that folder is set aside first.

    wait   wait for another process that has the lock; not where the folder is to be set aside

    Raises InputError where another process has the lock, or the folder cannot be written."""
    if anew(run) and run.directory.exists():
        with locked(run.directory):
            kept = set_aside(run.directory)
        print(f"kept the earlier run as {kept}")
    key = "run_dir" if run.settings.run_dir else "results"
    with locked(run.directory, wait, (key, getattr(run.settings, key))):
        yield


def set_aside(run_dir: Path) -> Path:
    """Rename a run folder to NAME.oldN, with the first free number N; returns the new path. InputError where
    it is not a run folder."""
    _check_ours(run_dir)
    number = 1
    while (kept := run_dir.with_name(f"{run_dir.name}.old{number}")).exists():
        number += 1
    shutil.move(run_dir, kept)
    return kept


def _check_folder(run: Run) -> None:
    run_dir = run.directory
    if anew(run) or not run_dir.exists():
        return
    if not run_dir.is_dir():
        raise InputError(f'run_dir="{run_dir}" is a file; give a folder')
    _check_ours(run_dir)
    there = (run_dir / "config.yaml").exists()
    if there and configs.completed(configs.stored(run_dir)) != configs.completed(run.composed):
        raise InputError(
            f'run_dir="{run_dir}" holds another run; give another folder, or fresh=true to set that one aside'
        )


def _check_ours(run_dir: Path) -> None:
    """InputError where a folder has no config, and is not one that a run was being prepared in."""
    preparing = {LOCK, "shards.json", "environment.json", *PARTS}
    if not (run_dir / "config.yaml").exists() and not {p.name for p in run_dir.iterdir()} <= preparing:
        raise InputError(f'run_dir="{run_dir}" is not empty and is not a run folder; give another run_dir')


def _begun_on(run_dir: Path) -> dict | None:
    """The fingerprint of the graph that a run was begun on; None where the run has not begun. InputError
    where it has, and shards.json is damaged."""
    path = run_dir / "shards.json"
    try:
        return files.read_json(path).get("graph")
    except (OSError, ValueError, AttributeError) as error:
        if isinstance(error, FileNotFoundError) or not _has_begun(run_dir):
            return None
        check_machine(error, path)
        raise InputError(f"{path} is damaged ({error}); start the run anew with fresh=true") from None


def _changed(run_dir: Path) -> InputError:
    return InputError(
        f"the graph has changed since {run_dir} was begun; give fresh=true to set that run aside and start"
        " anew"
    )


def fingerprint(run: Run) -> dict:
    """The fingerprint of a run's graph, in the form that it has after writing and reading JSON. InputError
    where the graph is not there."""
    return json.loads(json.dumps(run.dataset.fingerprint(Path(run.settings.data_dir), run.settings.seed)))


def shards_of(run: Run) -> tuple[Path, dict]:
    """The folder of the shards of a run's graph, from the cache or partitioned now; and the fingerprint by
    which the cache knows the graph."""
    data_dir, seed, graph = Path(run.settings.data_dir), run.settings.seed, fingerprint(run)
    load = partial(run.dataset.graph, data_dir, seed)
    return shards_for(_cache(run), graph, load, run.partition, run.settings.workers, seed), graph


def _cache(run: Run) -> Cache:
    """The run's cache, which says once for each kind of entry that one is being made."""
    return Cache(Path(run.settings.cache), functools.cache(partial(progress.say, run)))


def _shards(run: Run, machine: str) -> tuple[Path, dict, dict]:
    """What `shards_of` gives, and what was measured for the shards' products."""
    folder, graph = shards_of(run)
    return folder, graph, products.measured(run, _cache(run), folder, machine, _has_begun(run.directory))


def _died(code: int) -> RunFailed:
    """The error to raise where the child ended with this exit code before it had answered."""
    if code >= 0:
        return RunFailed(f"preparing the graph ended with exit code {code} and no error message", code or 1)
    hint = ", most likely for want of memory; take a smaller graph or dataset.scale"
    return killed("preparing the graph", code, hint)


def _in_child(work, *args):
    """work(*args) in a forked process. Its memory is given back when it ends, and Ctrl-C ends it at once.

    Raises InputError where the work does, and where it asks for more memory than there is; RunFailed for any
    other error, and where a signal killed the process, which it names.

    concurrent.futures.ProcessPoolExecutor will not do: it does not tell a dead worker's exit code
    (BrokenProcessPool has none), and it cannot kill a worker, so Ctrl-C would wait for the work to end."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    parent = os.getpid()

    # The child: one answer goes through the pipe, the result or the kind of error and its text.
    def body() -> None:
        be_child(parent)
        receiver.close()
        memory = limit_memory()
        try:
            answer = ("done", work(*args))
        except InputError as error:
            answer = ("input", str(error))
        except Exception as error:
            answer = ("failed", traceback.format_exc())
            if out_of_memory(error):
                asks = f"asks for more than the {memory / 1e9:.3g} GB of memory that there are"
                answer = ("input", f"preparing the graph {asks}; take a smaller graph or dataset.scale")
            elif limit := limit_reached(error):
                answer = ("limit", f"preparing the graph: {limit}")
        sender.send(answer)

    # The parent: start the child, read its answer, and kill it where anything stops this process meanwhile.
    child = context.Process(target=body, daemon=True)
    sys.stdout.flush()
    try:
        # A Ctrl-C that is held back while the child starts is raised here, at the end of the block.
        with forking():
            child.start()
        sender.close()
        kind, value = receiver.recv()
    except EOFError:
        child.join()
        raise _died(child.exitcode or 0) from None
    except BaseException:
        if child.pid is not None:
            child.kill()
        raise
    finally:
        if child.pid is not None:
            child.join()
    if kind == "input":
        raise InputError(value)
    if kind == "limit":
        raise RunFailed(value)
    if kind == "failed":
        raise RunFailed(f"preparing the graph failed:\n{value.rstrip()}")
    return value
