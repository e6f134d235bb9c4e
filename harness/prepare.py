"""Everything a run needs before a worker starts: the graph read and checked, partitioned, and its shards on disk.

The work is done in a forked child: the launcher itself must have run no threads when it forks its workers.
"""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import traceback
from pathlib import Path

import yaml

from harness.check import InputError
from harness.config import Run
from harness.core.system import RunFacts
from harness.graph import sources
from harness.partition.cache import Cache, shards_for
from harness.trace import writer


def prepare(run: Run) -> Path:
    """Make the shards (once: they are cached by content) and the run folder; returns the folder.

    Raises InputError where the data are bad or the system cannot do the run.
    """
    folder = _in_child(_shards, run)
    stats = writer.read_json(folder / "stats.json")
    facts = RunFacts(model=run.model.name, num_workers=run.settings.gpus, symmetric=stats["symmetric"],
                     multilabel=stats["multilabel"])
    reason = run.system.supports(facts)
    if reason:
        raise InputError(f"system: {reason}")
    run_dir = run.directory
    run_dir.mkdir(parents=True, exist_ok=True)
    writer.write_json_atomic(run_dir / "shards.json", {"folder": str(folder.resolve()), "stats": stats})
    writer.write_json_atomic(run_dir / "environment.json", writer.environment())
    # Last, since a folder with a config is a run folder.
    writer.write_text_atomic(run_dir / "config.yaml", yaml.safe_dump(run.composed, sort_keys=False))
    return run_dir


def set_aside(run_dir: Path) -> Path | None:
    """Move a run folder out of the way, keeping it beside with a number; None where there is none."""
    if not run_dir.exists():
        return None
    number = 1
    while (kept := run_dir.with_name(f"{run_dir.name}.old{number}")).exists():
        number += 1
    shutil.move(run_dir, kept)
    return kept


def _shards(run: Run) -> Path:
    data_dir, seed = Path(run.settings.data_dir), run.settings.seed
    return shards_for(
        Cache(Path(run.settings.cache)),
        sources.fingerprint(run.dataset, data_dir, seed),
        lambda: sources.load(run.dataset, data_dir, seed),
        run.partition,
        run.settings.gpus,
        seed,
    )


def _in_child(work, *args):
    """work(*args) in a forked process; its InputError comes back as such, anything else with its traceback."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return work(*args)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def body() -> None:
        try:
            answer = ("done", work(*args))
        except InputError as error:
            answer = ("input", str(error))
        except BaseException:
            answer = ("failed", traceback.format_exc())
        sender.send(answer)

    child = context.Process(target=body, daemon=True)
    sys.stdout.flush()
    child.start()
    sender.close()
    try:
        kind, value = receiver.recv()
    except EOFError:
        child.join()
        raise InputError(
            f"preparing the graph was killed (exit code {child.exitcode}), most likely for want of memory; take a smaller graph or dataset.scale"
        ) from None
    finally:
        if child.is_alive() and sys.exc_info()[0] is not None:
            child.terminate()
        child.join()
    if kind == "input":
        raise InputError(value)
    if kind == "failed":
        raise RuntimeError(f"preparing the graph failed:\n{value}")
    return value
