"""The raw files of real data sets (`harness.data.sets`): found under data_dir, or downloaded there."""

import contextlib
import os
import socket
import sys
from pathlib import Path

from harness.base.errors import InputError, package
from harness.base.scratch import scratch
from harness.data.real_set import RealSet
from harness.data.sets import SETS
from harness.data.twin_specs import SPECS

RETRIES = 2  # of a download that fails
# Other names under which a file is passed around.
ALIASES = {"raw/cora.npz": "raw/cora_full.npz"}


def find(name: str, data_dir: Path) -> tuple[Path, ...]:
    """The raw files of data set `name`, found in `data_dir` or else downloaded there.

    Raises InputError naming the missing file, where to put it and the twin to take instead."""
    source = SETS[name]
    if found := _complete(source, data_dir):
        return found
    try:
        if not source.url and not source.library:
            raise InputError(f"it is not offered ready made: {source.origin}")
        _download(source, data_dir)
        reason = "the download lacks it"
    except Exception as error:  # the library's, the network's or the disk's: each leaves the file missing
        reason = f"downloading it failed: {_why(error)}"
    if found := _complete(source, data_dir):
        return found
    missing = _first_missing(source, data_dir)
    twin = f", or take the synthetic twin with dataset=twin/{name}" if name in SPECS else ""
    raise InputError(
        f'{name}: file "{missing}" is missing from data_dir="{data_dir}" ({reason}); put it there{twin}'
    )


def _why(error: Exception) -> str:
    """Why a download failed, in a few words."""
    behind: BaseException | None = error
    while behind and not isinstance(behind, socket.gaierror):
        behind = behind.__cause__ or behind.__context__
    if behind:
        return "its server is not found, as without a network"
    return " ".join(str(error).split())[:200] or type(error).__name__


def present(name: str, data_dir: Path) -> bool:
    """Whether every raw file of data set `name` is in `data_dir`; nothing is downloaded."""
    return _complete(SETS[name], data_dir) is not None


def _complete(source: RealSet, data_dir: Path) -> tuple[Path, ...] | None:
    for folder in _existing(source, data_dir):
        paths = [path for file in source.files if (path := _file(folder, file)) is not None]
        if len(paths) == len(source.files):
            return tuple(paths)
    return None


def _existing(source: RealSet, data_dir: Path) -> list[Path]:
    """The candidate folders that exist, whatever the case of their letters."""
    found: dict[Path, None] = {}
    for candidate in source.folders:
        pattern = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in candidate)
        with contextlib.suppress(OSError):  # not for this user: nothing to find
            found |= dict.fromkeys(folder for folder in sorted(data_dir.glob(pattern)) if folder.is_dir())
    return list(found)


def _file(folder: Path, name: str) -> Path | None:
    for variant in (name, ALIASES.get(name, name)):
        if (folder / variant).is_file():
            return folder / variant
    return None


def _first_missing(source: RealSet, data_dir: Path) -> str:
    """The first missing file, relative to data_dir: in a folder that holds some of the data set's files, else
    in the first of its folders."""
    for folder in _existing(source, data_dir):
        there = [_file(folder, file) is not None for file in source.files]
        if any(there):
            return f"{folder.relative_to(data_dir)}/{source.files[there.index(False)]}"
    return f"{source.folders[0]}/{source.files[0]}"


def _download(source: RealSet, data_dir: Path) -> None:
    """Fetch the raw files into a temporary folder, then rename each into place, so that none is ever there in
    part."""
    folder = source.folders[0]
    created = not data_dir.exists()
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        with scratch(parent=data_dir, prefix=".download.") as beside:
            if source.url:
                fetched = _fetch(source, beside / "fetched")
            elif source.library == "ogb":
                fetched = _fetch_ogb(source, beside)
            else:
                fetched = _fetch_torch_geometric(source, beside)
            for file in sorted(path for path in fetched.rglob("*") if path.is_file()):
                target = data_dir / folder / file.relative_to(fetched)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
    finally:
        if created:
            with contextlib.suppress(OSError):  # no longer empty: the download came through
                data_dir.rmdir()


def _fetch(source: RealSet, into: Path) -> Path:
    """Download url + the last part of each file's name to into/file.

    A download that fails, or whose SHA-256 is not the known one, is tried again RETRIES times, 1 and 2
    seconds later. Where the last attempt gives another SHA-256, raises InputError; where it fails, the error
    of requests passes through."""
    pooch = package("pooch", "download", "a download")
    names = {file: Path(file).name for file in source.files}
    downloads = pooch.create(
        path=into,
        base_url=source.url,
        registry={file: source.sha256.get(name) for file, name in names.items()},
        urls={file: source.url + name for file, name in names.items()},
        retry_if_failed=RETRIES,
    )
    for file, name in names.items():
        try:
            downloads.fetch(file, downloader=pooch.HTTPDownloader())
        except ValueError as error:
            if name not in source.sha256:
                raise
            raise InputError(
                f"{source.url}{name} is not the file whose SHA-256 begins with {source.sha256[name][:12]}"
            ) from error
    return into


def _fetch_torch_geometric(source: RealSet, root: Path) -> Path:
    """Run only the class's download step: its processing would load the whole graph too, and write it."""
    # Imported here: it is heavy, and needed for downloads only.
    datasets = package("torch_geometric.datasets", "download", "a download")
    cls = getattr(datasets, source.library)
    dataset = cls.__new__(cls)
    dataset.root = str(root)
    Path(dataset.raw_dir).mkdir(parents=True, exist_ok=True)
    with contextlib.redirect_stdout(sys.stderr):
        dataset.download()
    return Path(dataset.raw_dir).parent


def _fetch_ogb(source: RealSet, root: Path) -> Path:
    """Unpack the archive at `origin`, which holds one folder of its own name."""
    from ogb.utils import url

    with contextlib.redirect_stdout(sys.stderr):
        archive = url.download_url(source.origin, str(root))
        url.extract_zip(archive, str(root))
    os.unlink(archive)
    return root / Path(source.origin).stem
