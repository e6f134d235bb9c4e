"""Where the machine lacks something a command says what, in one sentence, and blames no file for it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading

import pyarrow.parquet as pq
import pytest

from harness import cli
from harness.base import checksum
from harness.base.errors import machine_said
from harness.base.machine import LimitReached, limit_reached
from harness.results.reader import Trace
from harness.run import jobs
from tests import traces
from tests.launching import ROOT, fresh_python

LACKING = {
    "memory": MemoryError(),
    "processes or threads": RuntimeError("can't start new thread"),
    "files": OSError(errno.EMFILE, "Too many open files"),
    "disk": OSError(errno.ENOSPC, "No space left on device"),
}


# As in a terminal, however the tests were started: in the background a signal may be ignored.
INTERRUPTED = """
import signal, sys, types
signal.signal(signal.SIGINT, signal.default_int_handler)
import harness.cli as cli
def stops(*_):
    signal.raise_signal(signal.SIGINT)
def swallows(*_):
    try:
        stops()
    except BaseException:
        pass
def answers(*_):
    try:
        stops()
    finally:
        None.closed
load = {"loading": swallows}.get(sys.argv[1], lambda _: types.SimpleNamespace(main=globals()[sys.argv[1]]))
cli.load = load
sys.exit(cli.main(["report", "table"]))
"""
IMPORTING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(name, *_):
        if name == "harness.cli":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
import harness.__main__
"""
NO_SEMAPHORES = """
import errno, multiprocessing.synchronize, os, sys
def fails(*_, **__):
    raise OSError(errno.EROFS, "Read-only file system")
multiprocessing.synchronize.SemLock.__init__ = fails
def threads():
    for task in os.listdir("/proc/self/task"):
        name = open(f"/proc/self/task/{task}/comm").read().strip()
        if int(task) != os.getpid() and name != "jemalloc_bg_thd":
            print("a thread at a fork:", name, file=sys.stderr)
os.register_at_fork(before=threads)
from harness import cli
sys.exit(cli.main(sys.argv[1:]))
"""
HANGING = """
import signal
from harness.run import process
process.FORKING = 1
with process.forking():
    signal.sigwait([signal.SIGTERM])
"""
FORKER = """
import os
from harness.base.loading import load
load("harness.run.preload")
print(len(os.listdir("/proc/self/task")))
"""
# A finished run; then its spans again, as a frame that does not fit into what may be had.
READING = """
import os, resource, sys
from pathlib import Path
import pandas, psutil, pyarrow
from harness.base.machine import LimitReached
from harness.results import reader
run = Path(sys.argv[1])
threads = len(os.listdir("/proc/self/task"))
trace = reader.Trace(run)
frames = trace.epochs, trace.comm, trace.spans, trace.metrics
assert len(os.listdir("/proc/self/task")) == threads, "reading started a thread"
rows = trace._tables.table("spans")
rows = pyarrow.concat_tables([rows] * (200000 // len(rows))).combine_chunks()
most = psutil.Process().memory_info().vms + int(1.5 * rows.nbytes)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    reader.frame_of(rows, run)
except LimitReached as error:
    print(error)
"""


@pytest.mark.parametrize("what", LACKING)
def test_a_finished_run_is_not_called_damaged_for_what_the_machine_lacks(tmp_path, monkeypatch, what):
    run = traces.finished(tmp_path / "run")

    def fails(*_, **__):
        raise LACKING[what]

    for owner, name, ask in (
        (checksum, "of_file", lambda trace: trace.config),
        (pq, "ParquetFile", lambda trace: trace.epochs),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fails)
            with pytest.raises((RuntimeError, MemoryError)) as raised:
                ask(Trace(run))
        said = machine_said(raised.value)
        assert said and what in said and "damaged" not in said and "fresh" not in said


def test_a_library_that_finds_no_room_is_no_library_that_lacks():
    inner = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    outer = OSError("Could not find/load shared object file 'libllvmlite.so'")
    outer.__context__ = inner
    assert limit_reached(inner) == limit_reached(outer) == "there is not enough memory"
    assert limit_reached(ImportError("No module named 'nothing'")) is None


def test_other_errors_are_no_limit_of_the_machine():
    assert limit_reached(RuntimeError("x")) is None and limit_reached(OSError(errno.ENOENT, "no")) is None
    assert machine_said(ValueError("x")) is None
    assert (
        machine_said(PermissionError(errno.EACCES, "Permission denied", "f"))
        == "f cannot be used: Permission denied"
    )


def test_files_are_hashed_where_no_thread_can_be_started(tmp_path, monkeypatch):
    path = tmp_path / "large"
    path.write_bytes(b"x" * (checksum.BLOCK + 1))
    expected = checksum.of_file(path)

    def fails(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert checksum.of_file(path) == expected


def test_a_table_that_cannot_be_opened_for_want_of_files_is_not_called_damaged(tmp_path):
    trace = Trace(traces.finished(tmp_path / "run"))
    assert trace.config
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        with pytest.raises(LimitReached, match="no more files can be opened"):
            _ = trace.epochs
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_frame_for_which_there_is_no_memory_is_one_sentence_and_needs_no_thread(tmp_path):
    """Arrow ends the process (std::bad_alloc) where a cell that is a list finds none."""
    run = traces.finished(tmp_path / "run")
    done = fresh_python(READING, run)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run} cannot be read now: there is not enough memory\n"


@pytest.mark.parametrize("words", ["--help", "run --help", "report --help", "report table RUN"])
def test_a_full_standard_output_is_named(tmp_path, monkeypatch, capsys, words):
    run = traces.finished(tmp_path / "run")
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = cli.main(words.replace("RUN", str(run)).split())
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    told = capsys.readouterr().err
    assert code and told.startswith("error: standard output cannot be written: No space")
    assert told.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_leads_nowhere(tmp_path, closed):
    """And what is printed goes into no file that was opened since."""
    run = traces.finished(tmp_path / "run")
    words = f"{sys.executable} -m harness report html {run} --out {tmp_path / 'page.html'} {closed}"
    done = subprocess.run(["sh", "-c", words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!") and page.rstrip().endswith("</html>")


def test_a_line_of_a_log_that_cannot_be_formatted_is_left_out(capsys):
    class NoFile(logging.Formatter):
        def format(self, record):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(NoFile())
    with jobs.plain_warnings():
        handler.handle(logging.makeLogRecord({"msg": "x"}))
    assert capsys.readouterr().err == ""


@pytest.mark.nightly(10)
def test_a_run_needs_no_semaphores_and_forks_from_one_thread(tmp_path):
    """Semaphores are files in /dev/shm, which may be full or read-only. pyarrow's allocator has a thread that
    no fork waits for. Nightly: another Python starts."""
    words = ["dataset=twin/flickr", "dataset.scale=0.005", "workers=2", "epochs=1", f"results={tmp_path}"]
    done = fresh_python(NO_SEMAPHORES, *words, f"cache={tmp_path}/cache")
    assert done.returncode == 0 and "thread" not in done.stderr, done.stderr


@pytest.mark.parametrize("when", ["loading", "stops", "answers"])
def test_ctrl_c_is_one_line_also_where_a_library_swallows_it_or_answers_with_an_error(when):
    done = fresh_python(INTERRUPTED, when)
    assert done.returncode == 128 + signal.SIGINT and done.stderr == "stopped by SIGINT\n"


def test_ctrl_c_before_a_command_has_begun_is_no_traceback():
    done = fresh_python(IMPORTING)
    assert done.returncode == -signal.SIGINT and not done.stderr


FEW = {"--nproc=1": "no more processes or threads", "--nofile=8": "no more files"}


@pytest.mark.nightly(40)
@pytest.mark.parametrize("limit", FEW)
def test_few_processes_or_files_are_one_sentence(tmp_path, limit):
    """As another user, whom the kernel holds to a limit on processes, with root's access to files."""
    user = ["setpriv", "--reuid=54321", "--clear-groups"]
    user += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    words = ["dataset=twin/flickr", "dataset.scale=0.005", "workers=2", "epochs=1", f"results={tmp_path}"]
    command = [*(user if os.geteuid() == 0 else ()), "prlimit", limit]
    if not all(map(shutil.which, (command[0], "prlimit"))):
        pytest.skip("few processes need prlimit, and root setpriv beside it (util-linux)")
    done = subprocess.run(
        [*command, sys.executable, "-m", "harness", *words, f"cache={tmp_path}/cache"],
        cwd=ROOT,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    (said,) = [line for line in done.stderr.splitlines() if not line.startswith("<jemalloc>")]
    assert done.returncode == 1 and re.match(rf"error: (worker \d: )?{FEW[limit]} can be", said)


def test_signals_are_held_back_for_a_limited_time():
    """A process whose fork hangs ends."""
    assert fresh_python(HANGING).returncode == -signal.SIGALRM


def test_who_forks_has_no_threads():
    if os.uname().machine == "x86_64":
        assert fresh_python(FORKER).stdout == "1\n"
