"""Runs `python -m harness` again and again, each time in a fork of this process, which has everything
imported. It is itself forked, from the process that workers of tests are forked from.

A line of the pipe `asked` is [arguments, file for stdout, file for stderr]. The pid comes back through the
pipe `told`, and, after a line that says that it was seen, the exit code. Whoever started this process may be
killed: then it ends, and so does the command that is going on.
"""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from multiprocessing import forkserver
from pathlib import Path

from harness import cli
from harness.base.loading import load
from harness.base.machine import end_with


def child(arguments: list[str], out: str, err: str) -> None:
    os.setsid()
    # as in a terminal, however the tests were started
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 1
    try:
        code = cli.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def warm_up() -> None:
    """Do once what every command would do again: import what it needs, let Hydra find its plugins and build
    its parser, compose what most tests ask for, and read the code of which a run's hash is made.
    """
    for module in ("harness.run.command", "harness.run.preload", "harness.results.report.table"):
        load(module)
    from harness.run import config, overrides
    from harness.run.composing import compose

    for words in (
        [],
        ["dataset=npz"],
        *([f"system={name}", "dataset=npz"] for name in ("vanilla", "sancus")),
    ):
        compose(words)
    made = config.check(overrides.check(["dataset=cora"]))
    assert made.code


def main(folder: Path, environment: dict[str, str]) -> None:
    """Serve the pipes of `folder`, as a program that is started there."""
    end_with(os.getppid())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.argv, sys.dont_write_bytecode, tempfile.tempdir = [__file__], True, None
    multiprocessing.current_process()._config["daemon"] = False  # its commands may start processes
    forkserver._forkserver.__init__()  # what a command starts has this environment too, not that of the tests
    warm_up()
    own = os.getpid()
    with open("asked") as asked, open("told", "w") as told:
        while line := asked.readline():
            pid = os.fork()
            if pid == 0:
                end_with(own)
                child(*json.loads(line))
            print(pid, file=told, flush=True)
            asked.readline()  # it has been seen; a command that ends at once is gone with the line below
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=told, flush=True)
