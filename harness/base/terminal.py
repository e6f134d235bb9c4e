"""What is shown on a terminal may come from files of others: it is text, never markup or a command."""

import contextlib
import os
import re
import select
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

# Control characters but for the line feed and the tab, those that reverse the direction of writing, and what
# else no XML may hold, and so no picture: halves of a pair of UTF-16, and the two that are no characters.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
OF_A_LINE = re.compile(f"{CONTROL.pattern}|\n")  # what a text of one line may not hold


def printable(text: str) -> str:
    """The text with each control character as Python would write it, `\\x1b`."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@contextlib.contextmanager
def read_as_far_as_wanted() -> Iterator[None]:
    """For a body that prints to a reader who may stop reading, as `| head` does: that is no error.

    At the end all that was printed has left the buffer. Where the reader has gone, the rest of the body is
    not run, and an exit that was on its way (argparse's, after a help) is dropped. The BrokenPipeError of
    another pipe, as one to a process that was killed, is raised."""
    try:
        yield
    except (BrokenPipeError, SystemExit):
        if not _reader_gone():
            raise
    finally:
        _flush()


def _reader_gone() -> bool:
    """Whether nobody reads stdout any more."""
    asked = select.poll()
    try:
        asked.register(sys.stdout.fileno(), 0)  # for no event: only that the other end has gone is told
    except OSError:  # text that is kept in memory
        return False
    return bool(asked.poll(0))


def _flush() -> None:
    """Write what is in the buffer of stdout, for a reader who may have gone. Where that fails, stdout is led
    to /dev/null: else Python would try again when the process ends."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise


def counted(number: int | str, what: str) -> str:
    """ "1 host", or "2 hosts"; a number may be told in words, as "2 of 5"."""
    return f"{number} {what}{'s' if str(number) != '1' else ''}"


class Terminal(Console):
    """A console on which strings stand as they are, without control characters; a style is given beside."""

    def __init__(self, **options: Any):
        super().__init__(markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a sentence as it is: nothing in it is highlighted, and no line of it is folded."""
        self.print(text, style=style, highlight=False, soft_wrap=True)


def unfolded() -> Terminal:
    """A console on stdout; for a pipe or a file one so wide that tables are not folded."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=400)
