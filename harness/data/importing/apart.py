"""Runs an import in a process of its own, with limits on memory and time: a file that is made to do harm can
end that process but never this one, and the user gets one sentence."""

import faulthandler
import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from harness.base.errors import InputError
from harness.base.machine import end_with, limit, memory_bytes, out_of_memory
from harness.base.terminal import printable
from harness.data.raw import EXPANSION

# Bytes of memory that any import may take beside what this process has; where the files are large, EXPANSION
# bytes per byte of them.
MEMORY = 3 << 29
SECONDS, PER_BYTE = 120.0, 5e-5  # CPU seconds of any import, and further ones per byte of its files
LONGEST = 600  # characters of an error: it quotes what stands in the file
ANSWER = 1 << 22  # bytes of an answer
MEND = "make it again from where it came from"


def apart(work: Callable[[], list[str]], what: Path, files: Iterable[Path]) -> list[str]:
    """Run `work` in a forked process and return its lines, made printable.

    what    what is imported, as messages name it
    files   what is read: the limits follow from the sizes; a folder stands for the files in it

    Raises InputError, in one sentence, for all that goes wrong there: an error of any kind, more memory or
    time than files of this size need, a crash."""
    size = sum(path.stat().st_size for path in _files(files))
    memory, seconds = min(memory_bytes(), max(MEMORY, EXPANSION * size)), int(SECONDS + PER_BYTE * size)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    given = (work, what, sender, os.getpid(), memory, seconds)
    child = context.Process(target=_child, args=given, daemon=True)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child.start()
    sender.close()
    try:
        kind, said = json.loads(receiver.recv_bytes(ANSWER))
    except (EOFError, OSError, ValueError) as error:
        if not isinstance(error, EOFError):  # longer than ANSWER, or not JSON: no answer that `_child` gives
            raise InputError(f'"{what}" has more to tell than may be: {MEND}') from None
        child.join()
        raise InputError(f'"{what}" {_why(child.exitcode or 0, seconds)}: {MEND}') from None
    finally:
        child.kill()
        child.join()
        receiver.close()
    if kind != "done":
        raise InputError(_line(said))
    return list(map(_line, said))


def _files(given: Iterable[Path]) -> Iterable[Path]:
    for path in given:
        yield from (inside for inside in (path.rglob("*") if path.is_dir() else [path]) if inside.is_file())


def _line(text: str) -> str:
    return printable(text.replace("\n", "\\n"))


def _why(code: int, seconds: int) -> str:
    """What became of the process, by its exit code."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"takes more than {seconds} s of a processor, or more memory than there is, to read"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"ended the process that read it ({name})"


def _child(
    work: Callable[[], list[str]], what: Path, sender: Connection, parent: int, memory: int, seconds: int
) -> None:
    """Run `work` under the limits, and send ["done", its lines] or ["refused", why]."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent acts on it
    faulthandler.disable()
    # Discard what libraries print about a file, from C too.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_CPU, seconds)
    limit(resource.RLIMIT_DATA, psutil.Process().memory_info().data + memory)
    kind: str
    said: str | list[str]
    try:
        kind, said = "done", [line[: 1 << 16] for line in work()]
    except InputError as error:
        kind, said = "refused", str(error)[:LONGEST]
    except Exception as error:  # bytes from anywhere can make whoever reads them raise anything
        reason = " ".join(str(error).split())[:160]
        kind, said = "refused", f'"{what}" cannot be imported ({type(error).__name__}: {reason}): {MEND}'
        if out_of_memory(error):
            said = f'"{what}" asks for more than {memory / 1e9:.3g} GB of memory: {MEND}'
    sender.send_bytes(json.dumps([kind, said]).encode())
