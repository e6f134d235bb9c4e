"""Checksums of what the program wrote, by which it sees whether a file has changed since.

They are xxh3, which finds damage, not forgery. A file carries its checksum where its format has room for one
(an object of JSON as the key `checksum`, a text or a checkpoint as its last line). The checksums of other
files are listed in a file beside them, which carries its own."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

BLOCK = 16 << 20  # bytes that are hashed together
KEY = "checksum"  # of a sealed object
LINE = "# xxh3-128 {checksum}\n"  # the last of a sealed file
LINE_BYTES = len(LINE.format(checksum="0" * 32))


class Damaged(ValueError):
    """A file is not what was written. The message says what is wrong, without the file's name."""


def of_file(path: Path, size: int | None = None) -> str:
    """The checksum of the first `size` bytes of a file (None: of all), as 32 hex digits.

    It is the xxh3 of a text: the xxh3 of each block of 16 MiB, one after another, and the size. Raises
    OSError where the file cannot be read."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size if size is None else size
        starts = range(0, size, BLOCK)
        blocks = (_read(file.fileno(), start, min(start + BLOCK, size)) for start in starts)
        each = "".join(map(xxhash.xxh3_128_hexdigest, blocks))
    return xxhash.xxh3_128_hexdigest(f"{each} {size}".encode())


def _read(file: int, start: int, end: int) -> bytes:
    """The bytes from `start` to `end`; fewer where the file ends before."""
    parts = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object of JSON with its checksum under `checksum`."""
    bare = {key: each for key, each in value.items() if key != KEY}
    return {**bare, KEY: _of_object(bare)}


def unsealed(value: dict[str, Any]) -> dict[str, Any]:
    """The object without its checksum. Raises Damaged where there is none, or one of other content."""
    bare = {key: each for key, each in value.items() if key != KEY}
    if value.get(KEY) != _of_object(bare):
        raise Damaged("its checksum is not that of its content")
    return bare


def _of_object(value: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(value))  # keys as JSON gives them back
    return xxhash.xxh3_128_hexdigest(json.dumps(plain, sort_keys=True).encode())


def line_of(path: Path) -> str:
    """The line to append to a file so that it is sealed: the checksum of what the file holds now."""
    return LINE.format(checksum=of_file(path))


def check_sealed(path: Path) -> None:
    """Damaged where a file's last line is not the checksum of what is before it, OSError where unreadable."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size - LINE_BYTES
        last = _read(file.fileno(), size, size + LINE_BYTES) if size >= 0 else b""
    found = re.fullmatch(LINE.format(checksum="([0-9a-f]{32})").encode(), last)
    if found is None or of_file(path, size) != found[1].decode():
        raise Damaged("its checksum is not that of its content")
