"""Downloads of raw files: tried again where they fail, and held to a checksum.

The checksum is a known one, or else that of the first download, kept in data_dir.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from filelock import FileLock

from harness.check import InputError
from harness.check.extras import package

RETRIES = 2
# In data_dir: a line with path and SHA-256 for each file that was downloaded and is not in KNOWN.
KEPT = "checksums.txt"
# SHA-256 of raw files by folder, and by path in data_dir.
BY_FOLDER = {
    "Physics": {
        "ms_academic_phy.npz": "121a85ee9fac9859693e649d3e9f3561e3a23a9aa4d8e8951e9e3eec8e9b52ef",
    },
    "CS": {
        "ms_academic_cs.npz": "48e79e9e838aab635ca8fff852d25cb804c0d8ed79e5bae0f1a8f2d147b2188d",
    },
    "Computers": {
        "amazon_electronics_computers.npz": "bffa1720ee30487a6f10f2ad57741d1a401d89a31a6a4c5c6de1ba42a1f2a0e0",  # noqa: E501
    },
    "Photo": {
        "amazon_electronics_photo.npz": "f0552bc8bcdb103c25b07cf4619bd9458af435c0728dc8366e86ffb912018c25",
    },
    "Cora": {
        "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
        "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    },
    "CiteSeer": {
        "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
        "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    },
    "dblp": {
        "dblp.npz": "733c4ec2eec712a3c2b6cf9660ba9f4e1bdf4ce27869114f1de29d8e7a5a24f5",
    },
    "tolokers": {
        "tolokers.npz": "dacf3ac94cec53d03cd2adb5255c08b33dee1656c33ca8164a464bd9450a1667",
    },
}
KNOWN = {
    f"{folder}/raw/{file}": value for folder, values in BY_FOLDER.items() for file, value in values.items()
}


def fetch(url: str, files: tuple[str, ...], checksums: Mapping[str, str], into: Path) -> None:
    """Download url + the last part of each of `files` to into/file.

    A download that fails, or whose SHA-256 is not what `checksums` has for the file, is tried again RETRIES
    times, 1 and 2 seconds later. Raises InputError where the last one has another SHA-256, and what requests
    raises where it fails.
    """
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


def expected(data_dir: Path, folder: str, files: tuple[str, ...]) -> dict[str, str]:
    """The SHA-256 of those of `files` in data_dir/folder that are known or were kept by `hold`."""
    checksums = {**_kept(data_dir), **KNOWN}
    return {file: checksums[f"{folder}/{file}"] for file in files if f"{folder}/{file}" in checksums}


def hold(data_dir: Path, folder: str, fetched: Path, files: tuple[str, ...]) -> None:
    """Compare what is in `fetched` with what is expected in data_dir/folder; keep the SHA-256 of the rest.

    Raises InputError at the first file that is another one than before.
    """
    with FileLock(data_dir / f".{KEPT}.lock"):
        checksums, new = expected(data_dir, folder, files), {}
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
