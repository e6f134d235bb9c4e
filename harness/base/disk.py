"""Writing below a folder that came from somebody else: no link that lies in it is followed.

Whatever a run folder is written or cleaned with goes through here. A file is always made anew: what stands
under its name, a link too, goes first. A folder is refused where it holds a link, when it is taken to be
written to (`harness.run.prepare.locked`), since below a link to a folder every name is another's."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from harness.base.errors import InputError


def create(path: Path, mode: str = "wb", access: int = 0o666, **options: Any) -> IO[Any]:
    """A new file in the place of what stands there, open for writing, for whom `access` says. `options` are
    those of `open`."""
    path.unlink(missing_ok=True)

    def anew(name: str, flags: int) -> int:
        return os.open(name, (flags & ~os.O_TRUNC) | os.O_EXCL | os.O_NOFOLLOW, access)

    return open(path, mode, opener=anew, **options)


@contextlib.contextmanager
def replacing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file that stands at `path` when the body has ended, whole; until then, or where the body raises, what
    was there before does."""
    part = path.with_name(path.name + ".part")
    try:
        with create(part, mode, **options) as file:
            yield file
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_tree(path: Path, ignore_errors: bool = False) -> None:
    """Remove a folder, if it is there, with all that is in it; of a link the link alone. OSError where it
    cannot be, unless errors are ignored."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path, ignore_errors=ignore_errors)


def link_in(folder: Path) -> str | None:
    """A link that a folder holds, at any depth; None where it holds none."""
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if os.path.islink(found := os.path.join(above, name)):
                return found
    return None


def refuse_links(folder: Path) -> None:
    """InputError where a run folder holds a link, at any depth."""
    if found := link_in(folder):
        raise InputError(
            f"{found} is a link, which no run makes: remove it, or put what it points to in its place"
        )
