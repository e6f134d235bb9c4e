"""What every subcommand of `halobench` does around its own work."""

import argparse
import functools
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

from harness.base.errors import FULL, InputError, did_you_mean
from harness.base.terminal import read_as_far_as_wanted

AS_WRITTEN = argparse.RawDescriptionHelpFormatter  # for a description whose lines stay as they are
RUN_HELP = "a run folder, a folder above some, or a glob pattern"  # of an argument RUN


class Main(Protocol):
    """A subcommand as `harness.cli` calls it, with the words behind the subcommand (None: this process's
    arguments) and the command as it was typed, which its help shows. Returns the exit code."""

    def __call__(self, arguments: Sequence[str] | None = None, program: str = ..., /) -> int: ...


def check_options(words: Iterable[str], parser: argparse.ArgumentParser, keys: bool = False) -> None:
    """Raise InputError for the first word that begins with "--" and is no option of the parser, nor the
    beginning of one. Words after a plain "--" are not looked at.

    keys   the parser takes words KEY=VALUE too: the error then says how to give the word as one
    """
    options = [option for action in parser._actions for option in action.option_strings]
    for word in itertools.takewhile(lambda word: word != "--", words):
        if word.startswith("--") and not any(each.startswith(word.partition("=")[0]) for each in options):
            nearest = did_you_mean(word, options)
            if keys and "did you mean" not in nearest:
                key, _, value = word.removeprefix("--").partition("=")
                nearest = f": a key is given as {key}={value or 'VALUE'}"
            raise InputError(f"{word} is not an option{nearest}")


def _path(given: str) -> Path:
    """A path as it was typed; `Path` would take an empty text for the working directory."""
    if not given:
        raise argparse.ArgumentTypeError("an empty text is no path")
    return Path(given)


class Parser(argparse.ArgumentParser):
    """argparse's parser, with errors as InputError. A misspelt option is told of first, with the nearest
    option, before any argument that is missing; an empty text is no path."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register("type", Path, _path)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(args or ())
        if self._subparsers:  # words behind a command's name are that command's
            words = list(itertools.takewhile(lambda word: word.startswith("-"), words))
        check_options(words, self, any("KEY=VALUE" in str(action.metavar) for action in self._actions))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise InputError with argparse's message, without its usage, as one sentence."""
        lacking = message.removeprefix("the following arguments are required: ")
        said = message
        if lacking != message:
            commands = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
            lacking = next(("|".join(each.choices) for each in commands if each.dest == lacking), lacking)
            said = f"{lacking.replace('|', ', ')} must be given"
            said = f"one of {said}" if "|" in lacking else said
        elif wrong := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message):
            known = [each.strip("' ") for each in wrong[3].split(",")]
            said = f'{wrong[1]} "{wrong[2]}" is not known'
            if "|" in wrong[1]:
                said = f'"{wrong[2]}" is not a command'
            said += did_you_mean(wrong[2], known)
        end = " " if said.endswith("?") else "; "
        raise InputError(f"{said}{end}{self.prog} --help says more")


def command(program: str) -> Callable[[Callable[[list[str], str], int | None]], Main]:
    """Make a subcommand (`Main`) of a function that takes the words and the command as it was typed.

    program   the command's name where none is handed over

    The exit code is what the function returns (None: 0). It is 2, with one sentence on stderr, where the
    function raises InputError or a disk is full. A reader may stop reading its output, as `| head` does."""

    def made(act: Callable[[list[str], str], int | None]) -> Main:
        @functools.wraps(act)
        def main(arguments: Sequence[str] | None = None, program: str = program, /) -> int:
            code = 0
            try:
                with read_as_far_as_wanted():
                    code = act(list(sys.argv[1:] if arguments is None else arguments), program) or 0
            except InputError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
            except OSError as error:
                if error.errno not in FULL:
                    raise
                place = error.filename or "standard output"
                print(
                    f"error: {place} cannot be written: {error.strerror}; give another place", file=sys.stderr
                )
                return 2
            return code

        return main

    return made
