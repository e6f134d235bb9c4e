"""The command `halobench`, also started as `python -m harness`: its subcommands, and which one to call.

A subcommand is a line of COMMANDS; its module is imported when it is called, so that none waits for another's
imports. Words without a subcommand (`system=vanilla workers=2`) are those of `run`; without words the help is
printed. `--config-dir FOLDER` may be given to any subcommand. Hydra reads the option itself for `run` and
`prepare`; all others find the folder in the environment (OWN_CONFIG)."""

import argparse
import contextlib
import difflib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import harness
from harness.base.heap import start_without_cache
from harness.base.loading import load
from harness.base.places import OWN_CONFIG


@dataclass(frozen=True)
class Command:
    """A subcommand.

    module, function   the function that it calls: takes the words after it, and what was typed for it;
                       returns the exit code
    says               what it does, as `halobench --help` lists it
    after              words that are added after those that are given
    """

    module: str
    says: str
    function: str = "main"
    after: tuple[str, ...] = ()


COMMANDS = {
    "run": Command("harness.run.command", "train one run, or with -m a sweep; --dry: what would run", "run"),
    "prepare": Command("harness.run.command",
        "make the shards and the run folder, and print the torchrun command that trains it",
        "run", after=("launch=prepare",)),
    "report": Command("harness.results.report.__main__", "tables of finished runs"),
    "report claims": Command("harness.papers.claims.__main__",
        "verdicts on what the papers print, from the runs of experiments"),
    "report html": Command("harness.cli.page.__main__",
        "one page of finished runs: the answer, verdicts, pictures, tables"),
    "replay": Command("harness.model.replay.__main__",
        "what finished runs would take on another cluster: modelled, from traces"),
    "plan": Command("harness.model.plan.__main__",
        "what runs would take, before they run: does it fit, bytes, modelled seconds"),
    "advise": Command("harness.model.plan.advise",
        "which system for a graph on a cluster: plans and probes all, trains the best three"),
    "cluster fit": Command("harness.papers.claims.fit", "a preset fitted to a row that its paper prints"),
    "cluster measure": Command("harness.model.calibrate.__main__",
        "this machine as a cluster that runs can be replayed on"),
    "tune": Command("harness.cli.tune",
        "each system at its best: as many trials for all, then fresh seeds beside its default"),
    "runs": Command("harness.cli.runs", "run folders: list, show, compare, remove, extend; clean the cache"),
    "figures": Command("harness.papers.figures.__main__",
        "experiments: starts the runs they lack, draws, prints verdicts"),
    "study": Command("harness.papers.study.__main__", "every system on real graphs, as one page of tables"),
    "submit": Command("harness.submissions.__main__", "a bundle of finished runs, to hand in"),
    "submit check": Command("harness.submissions.__main__",
        "whether a bundle can be what its runs did: a share is made again", "check"),
    "submit page": Command("harness.submissions.__main__", "a page that ranks bundles", "page"),
    "new": Command("harness.cli.new", "the files of a system, a data set or an experiment of one's own"),
    "import": Command("harness.data.importing.__main__",
        "an npz graph from CSV tables or a PyG Data"),
    "check": Command("harness.dev.conformance.__main__",
        "the checks that every system inherits, for one system"),
    "bench": Command("harness.dev.bench.__main__",
        "speed of the harness, beside its peers' where there are any"),
    "fidelity": Command("harness.dev.fidelity", "how near the synthetic twins are to their graphs"),
}  # fmt: skip
TAKE_KEYS = ("plan", "advise", "tune", "check")  # commands that take KEY=VALUE, beside run and prepare
# Options by which a shell asks for completion; Hydra has the same.
COMPLETION = ("-sc", "--shell-completion")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command with these words (None: this process's); returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and words and words[0] not in COMPLETION:
        start_without_cache()
    _open_streams()
    try:
        return _answered(words)
    except (KeyboardInterrupt, Exception) as error:
        before: BaseException | None = error
        # A library that a Ctrl-C interrupts may raise an error of its own, in whose context the Ctrl-C
        # stands.
        while before and not isinstance(before, KeyboardInterrupt):
            before = before.__context__
        if before:
            number = signal.Signals(getattr(before, "number", signal.SIGINT))
            print(f"stopped by {number.name}", file=sys.stderr)
            return 128 + number
        from harness.base.errors import FULL, machine_said

        said = machine_said(error)
        if isinstance(error, OSError) and error.errno in FULL and not error.filename:
            said = f"standard output cannot be written: {error.strerror}; give another place"
        if said is None:
            raise
        print(f"error: {said}", file=sys.stderr)
        return 1


def _open_streams() -> None:
    """Open os.devnull for each standard stream that was closed when this process started. Otherwise the next
    file that is opened would take its number, and whatever is printed would be written into that file."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # gives the lowest number that is free
            os.set_inheritable(opened, opened == number)
            setattr(sys, name, open(opened, "w" if number else "r"))  # noqa: SIM115 -- as long as the process


def _answered(words: list[str]) -> int:
    if "--version" in words:
        print(f"halobench {harness.__version__}")
        return 0
    if words and words[0] in COMPLETION:
        return _complete(words)
    typed = "python -m harness" if Path(sys.argv[0]).parts[-2:] == ("harness", "__main__.py") else "halobench"
    from harness.base.terminal import read_as_far_as_wanted  # rich: in `main`, a Ctrl-C meanwhile is one line

    if words and not {"-h", "--help"} & {*words}:
        return _called(words, typed)
    with read_as_far_as_wanted():
        if {*words} - {"-h", "--help"}:
            return _called(words, typed)
        print(_listed())
    return 0


def _called(words: list[str], typed: str) -> int:
    """Call the command that the words name, `run` where they name none; returns its exit code."""
    # Find the command's name, which may have two words and may follow --config-dir.
    ahead = len(words) > 2 and words[0] == "--config-dir" and words[2] in COMMANDS
    if ahead or (len(words) > 1 and words[0].startswith("--config-dir=") and words[1] in COMMANDS):
        at = 2 if ahead else 1  # the option takes two words, or one
        words = [*words[at:], *words[:at]]
    two = " ".join(words[:2])
    name = two if two in COMMANDS else words[0] if words and words[0] in COMMANDS else None
    if name and " " not in name and len(words) > 1 and words[1].isalpha() and not Path(words[1]).exists():
        second = [command.partition(" ")[2] for command in COMMANDS if command.startswith(f"{name} ")]
        if near := difflib.get_close_matches(words[1], second, n=1):
            print(f'error: "{two}" is not a command; did you mean "{name} {near[0]}"?', file=sys.stderr)
            return 2
    words = words[len(name.split()) if name else 0 :]
    if "--dry" in words and name in (None, "run"):  # a plan of what these words would run
        name, words = "plan", [word for word in words if word not in ("-m", "--multirun")]
    if name is None and words and words[0].isalpha():
        from harness.base.errors import did_you_mean

        # The word may be the first of a command of two.
        begun = [each for each in COMMANDS if each.startswith(f"{words[0]} ")]
        alone = begun and (len(words) == 1 or words[1].startswith("-"))
        wrong = two if begun and not alone else words[0]
        told = did_you_mean(wrong, begun or COMMANDS)
        if alone:
            told = f"; known: {', '.join(begun)}"
        if not begun and _is_key(wrong):
            told = f": a key is given as {wrong}=VALUE"
        print(f'error: "{wrong}" is not a command{told}', file=sys.stderr)
        return 2
    # Call it. Commands other than `run` and `prepare` find the folder of --config-dir in the environment.
    command = COMMANDS[name or "run"]
    given = os.environ.get(OWN_CONFIG)
    if command.function != "run":
        parser = argparse.ArgumentParser(prog=f"{typed} {name}", add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", default=given)
        own, words = parser.parse_known_args(words)
        os.environ[OWN_CONFIG] = own.config_dir or ""
    try:
        entry = getattr(_loaded(command.module), command.function)
        return entry([*words, *command.after], f"{typed} {name}" if name else typed)
    finally:
        os.environ[OWN_CONFIG] = given or ""


def _is_key(word: str) -> bool:
    """Whether the config has this key or block."""
    from harness.run import config, settings

    return word in (*config.ALL, *settings.RunConfig.__dataclass_fields__, "gpus")


def _loaded(module: str) -> ModuleType:
    """Import a module. A Ctrl-C meanwhile ends this process at once: some libraries swallow what a signal
    handler raises inside an import, or stay half imported."""
    own = signal.getsignal(signal.SIGINT)
    at_once = own is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if at_once:
        signal.signal(signal.SIGINT, _end)
    try:
        return load(module)
    finally:
        if at_once:
            signal.signal(signal.SIGINT, own)


def _end(number: int, _frame: object) -> None:
    os.write(2, f"stopped by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)


def _listed() -> str:
    rows = [f"  {name:<15} {command.says}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: halobench [COMMAND] ...        (or python -m harness [COMMAND] ...)",
            "",
            "commands (halobench COMMAND --help says more; KEY=VALUE words alone are those of run, and",
            "halobench run system=NAME --help describes every key):",
            *rows,
            "",
            "options: --version, --help, --config-dir FOLDER (configs of one's own, as system/NAME.yaml; or",
            f"         {OWN_CONFIG}=FOLDER in the environment)",
            "",
        ]
    )


def _complete(words: list[str]) -> int:
    """Print what the shell can complete its line with: names of subcommands for the first word; after GROUP=
    the group's options, in a list the next one; else Hydra's keys and options, for the commands that take
    them. The line stands in COMP_LINE."""
    line = os.environ.get("COMP_LINE", "").split(" ")
    begun = line[1] if len(line) > 1 else ""
    names = [name.partition(" ")[0] for name in COMMANDS if len(line) == 2 and name.startswith(begun)]
    if len(line) == 3:
        begins = [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{begun} ")]
        names = [name for name in begins if name.startswith(line[2])]
    if names:
        print(" ".join(dict.fromkeys(names)))
    if len(line) > 2 and any(name.startswith(f"{begun} ") for name in COMMANDS) and begun not in COMMANDS:
        return 0
    if len(line) > 2 and begun in COMMANDS:
        if COMMANDS[begun].function != "run" and begun not in TAKE_KEYS:
            return 0
        del line[1]
        os.environ["COMP_LINE"] = " ".join(line)
    key, _, value = line[-1].partition("=")
    if value or line[-1].endswith("="):
        from harness.base.errors import InputError
        from harness.run import overrides

        before = value[: value.rfind(",") + 1]
        with contextlib.suppress(InputError):
            if known := overrides.options(key, line[1:-1]):
                offered = (f"{key}={before}{option}" for option in known)
                print(" ".join(each for each in offered if each.startswith(line[-1])))
                return 0
    return getattr(load(COMMANDS["run"].module), COMMANDS["run"].function)(words)
