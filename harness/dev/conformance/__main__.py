"""`halobench check system=NAME [system.KNOB=VALUE ...] [--config-dir FOLDER]`: hold a
system to what every system must hold.

Exact training at the knob that it names, the same bits for the same seed and after a stop, every byte
counted, remote rows used, and refusals in one sentence. The checks are `harness/dev/conformance/checks.py`.
"""

import importlib.util
import os
import shlex

from harness.base.errors import InputError
from harness.base.subcommand import Parser, command
from harness.dev.conformance.subject import subject


@command("halobench check")
def main(words: list[str], program: str) -> int:
    """Exit code 1 where a check failed."""
    parser = Parser(prog=program, description=__doc__.split("\n\n")[1])
    parser.add_argument("words", nargs="+", metavar="system=NAME", help="the system, and knobs of it")
    parser.add_argument("-k", metavar="EXPRESSION", help="only checks whose name matches, as pytest's -k")
    asked = parser.parse_args(words)
    subject(asked.words)
    if importlib.util.find_spec("pytest") is None:
        raise InputError("pytest is not installed; install it with pip install pytest")
    import pytest

    # None of the settings and fixtures of the folder that this is called in.
    options = ["-c", os.devnull, "--rootdir", os.curdir, "--noconftest", "-p", "no:cacheprovider"]
    options += ["-p", "harness.dev.conformance.plugin", "--check", shlex.join(asked.words)]
    options += ["-k", asked.k] if asked.k else []
    options += ["-v", "-rs", "--tb=short", "-Wignore::pytest.PytestAssertRewriteWarning"]
    options += ["--pyargs", "harness.dev.conformance.checks"]
    if (code := pytest.main(options)) == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return int(code != 0)
