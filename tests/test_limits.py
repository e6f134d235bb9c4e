"""Where the machine lacks something a command says what, in one sentence, and blames no file for it."""

import contextlib
import errno
import json
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
from tests import traces
from tests.launching import ROOT, fresh_python

LACKING = {
    "memory": MemoryError(),
    "processes or threads": RuntimeError("can't start new thread"),
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
cli.load = swallows if sys.argv[1] == "loading" else lambda _: types.SimpleNamespace(main=answers)
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
import os, signal
from harness.base.loading import load
load("harness.run.preload")
print(len(os.listdir("/proc/self/task")), flush=True)
from harness.run import process
process.FORKING = 1
with process.forking():
    signal.sigwait([signal.SIGTERM])
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


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run."""
    return traces.finished(tmp_path_factory.mktemp("finished") / "run")


@pytest.mark.parametrize("what", LACKING)
def test_a_finished_run_is_not_called_damaged_for_what_the_machine_lacks(run, monkeypatch, what):
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


def test_what_is_a_limit_of_the_machine_and_what_is_not():
    no_room = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    outer = OSError("Could not find/load shared object file 'libllvmlite.so'")
    outer.__context__ = no_room
    assert limit_reached(no_room) == limit_reached(outer) == "there is not enough memory"
    for other in (ImportError("No module named 'nothing'"), RuntimeError("x"), OSError(errno.ENOENT, "no")):
        assert limit_reached(other) is None
    denied = PermissionError(errno.EACCES, "Permission denied", "f")
    assert machine_said(denied) == "f cannot be used: Permission denied"


def test_files_are_hashed_where_no_thread_can_be_started(tmp_path, monkeypatch):
    path = tmp_path / "large"
    monkeypatch.setattr(checksum, "BLOCK", 7)
    path.write_bytes(b"x" * 20)
    expected = checksum.of_file(path)

    def fails(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert checksum.of_file(path) == expected


def test_a_table_that_cannot_be_opened_for_want_of_files_is_not_called_damaged(run):
    trace = Trace(run)
    assert trace.config
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        with pytest.raises(LimitReached, match="no more files can be opened"):
            _ = trace.epochs
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_frame_for_which_there_is_no_memory_is_one_sentence_and_needs_no_thread(run):
    """Arrow ends the process (std::bad_alloc) where a cell that is a list finds none."""
    done = fresh_python(READING, run)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run} cannot be read now: there is not enough memory\n"


@pytest.mark.parametrize("words", ["--help", "report --help", "report table RUN"])
def test_a_full_standard_output_is_named(run, monkeypatch, capsys, words):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = cli.main(words.replace("RUN", str(run)).split())
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
    told = capsys.readouterr().err
    assert code and told.startswith("error: standard output cannot be written: No space")
    assert told.count("\n") == 1


def test_a_stream_that_is_closed_leads_nowhere(run, tmp_path):
    """And what is printed goes into no file that was opened since."""
    out = tmp_path / "spans.json"
    words = f"{sys.executable} -m harness report perfetto {run} --out {out} <&- >&- 2>&-"
    done = subprocess.run(["sh", "-c", words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(out.read_text())["traceEvents"]


@pytest.mark.nightly(10)
def test_a_run_needs_no_semaphores_and_forks_from_one_thread(tmp_path):
    """Semaphores are files in /dev/shm, which may be full or read-only. pyarrow's allocator has a thread that
    no fork waits for. Nightly: another Python starts."""
    words = ["dataset=twin/flickr", "dataset.scale=0.005", "workers=2", "epochs=1", f"results={tmp_path}"]
    done = fresh_python(NO_SEMAPHORES, *words, f"cache={tmp_path}/cache")
    assert done.returncode == 0 and "thread" not in done.stderr, done.stderr


@pytest.mark.parametrize("when", ["loading", "answers"])
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


def test_who_forks_has_no_threads_and_holds_signals_back_for_a_limited_time():
    """A process whose fork hangs ends."""
    done = fresh_python(HANGING)
    assert done.returncode == -signal.SIGALRM
    assert done.stdout == "1\n" or os.uname().machine != "x86_64"
