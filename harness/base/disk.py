"""Writing below a folder that came from somebody else: no link that lies in it is followed.

All that writes to a run folder or cleans it goes through here. A file is always made anew: what stands under
its name, even a link, is removed first. That does not help below a link to a folder, which leads to other
people's files. So a run folder that holds a link is refused before it is written to
(`harness.run.prepare.locked`)."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from harness.base.errors import InputError


def create(path: Path, mode: str = "wb", access: int = 0o666, **options: Any) -> IO[Any]:
    """A new file in the place of what stands at `path`, open for writing. `access`: its permission bits;
    `options`: those of `open`."""
    path.unlink(missing_ok=True)

    def anew(name: str, flags: int) -> int:
        return os.open(name, (flags & ~os.O_TRUNC) | os.O_EXCL | os.O_NOFOLLOW, access)

    return open(path, mode, opener=anew, **options)


@contextlib.contextmanager
def replacing(path: Path, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file for the body to write, which takes its place at `path` when the body has ended, whole. Until
    then, and where the body raises, what was at `path` before stays."""
    part = path.with_name(path.name + ".part")
    try:
        with create(part, mode, **options) as file:
            yield file
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def remove_tree(path: Path, ignore_errors: bool = False) -> None:
    """Remove a folder, if it is there, with all that is in it; where `path` is a link, the link alone. Raises
    OSError where it cannot be removed, unless errors are ignored."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path, ignore_errors=ignore_errors)


def link_in(folder: Path) -> str | None:
    """The path of a link that a folder holds, at any depth; None where it holds none."""
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
