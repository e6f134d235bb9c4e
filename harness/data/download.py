"""Downloads of raw files: tried again where they fail, and held to a checksum.

The checksum is a known one, or else that of the first download, kept in data_dir."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from harness.base.errors import InputError
from harness.base.extras import package

RETRIES = 2
# In data_dir: a line with path and SHA-256 for each file that was downloaded and is not known.
KEPT = "checksums.txt"


def fetch(url: str, files: tuple[str, ...], checksums: Mapping[str, str], into: Path) -> None:
    """Download url + the last part of each of `files` to into/file.

    A download that fails, or whose SHA-256 is not what `checksums` has for the file, is tried again RETRIES
    times, 1 and 2 seconds later. Raises InputError where the last one has another SHA-256, and what requests
    raises where it fails."""
    pooch = package("pooch", "download")
    source = pooch.create(
        path=into,
        base_url=url,
        registry={file: checksums.get(file) for file in files},
        urls={file: url + Path(file).name for file in files},
        retry_if_failed=RETRIES,
    )
    for file in files:
        try:
            source.fetch(file, downloader=pooch.HTTPDownloader())
        except ValueError as error:
            if file not in checksums:
                raise
            raise InputError(
                f"{source.get_url(file)} is not the file whose SHA-256 begins with {checksums[file][:12]}"
            ) from error


def expected(data_dir: Path, folder: str, files: tuple[str, ...], known: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of those of `files` in data_dir/folder that are `known`, by path in data_dir, or kept."""
    checksums = {**_kept(data_dir), **known}
    return {file: checksums[f"{folder}/{file}"] for file in files if f"{folder}/{file}" in checksums}


def hold(
    data_dir: Path, folder: str, fetched: Path, files: tuple[str, ...], known: Mapping[str, str]
) -> None:
    """Compare what is in `fetched` with what is expected in data_dir/folder; keep the SHA-256 of the rest.

    Raises InputError at the first file that is another one than before."""
    with FileLock(data_dir / f".{KEPT}.lock"):
        checksums, new = expected(data_dir, folder, files, known), {}
        for file in files:
            if not (fetched / file).is_file():
                continue
            with (fetched / file).open("rb") as opened:
                found = hashlib.file_digest(opened, "sha256").hexdigest()
            if found != checksums.get(file, found):
                raise InputError(
                    f"{folder}/{file} is not the file whose SHA-256 begins with {checksums[file][:12]}"
                )
            if file not in checksums:
                new[f"{folder}/{file}"] = found
        if new:
            part = data_dir / f"{KEPT}.part"
            part.write_text("".join(f"{name} {value}\n" for name, value in (_kept(data_dir) | new).items()))
            os.replace(part, data_dir / KEPT)


def _kept(data_dir: Path) -> dict[str, str]:
    path = data_dir / KEPT
    if not path.is_file():
        return {}
    return dict(line.rsplit(" ", 1) for line in path.read_text().splitlines() if " " in line)
