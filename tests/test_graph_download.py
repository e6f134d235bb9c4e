"""Downloads: tried again, and held to known checksums."""

import dataclasses
import hashlib
import socket
from pathlib import Path
from types import SimpleNamespace

import pooch
import pytest
import requests

from harness.data import real
from tests import raw_files, sets
from tests.raw_files import block, small

CS = "CS/raw/ms_academic_cs.npz"
SHA256 = real.SETS["coauthor-cs"].sha256["ms_academic_cs.npz"]


class Downloads:
    """In the place of pooch's downloader: gives `content` after the first `failures` tries."""

    def __init__(self):
        self.content, self.failures = b"", 0
        self.asked: list[str] = []
        self.waits: list[float] = []

    def __call__(self, url, path, _):
        self.asked.append(url)
        if len(self.asked) <= self.failures:
            raise requests.HTTPError("503 Server Error")
        Path(path).write_bytes(self.content)


@pytest.fixture
def downloads(monkeypatch):
    """The waits between tries are noted and not waited for."""
    made = Downloads()
    monkeypatch.setattr(pooch, "HTTPDownloader", lambda: made)
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=made.waits.append))
    return made


def cs_file(folder: Path) -> bytes:
    raw_files.write_attributed(folder, "written.npz", small())
    return (folder / "raw" / "written.npz").read_bytes()


def test_a_download_that_fails_is_tried_again(tmp_path, downloads, monkeypatch):
    downloads.content, downloads.failures = cs_file(tmp_path), 2
    known = {"ms_academic_cs.npz": hashlib.sha256(downloads.content).hexdigest()}
    source = dataclasses.replace(real.SETS["coauthor-cs"], sha256=known)
    monkeypatch.setitem(real.SETS, "coauthor-cs", source)
    assert block("coauthor-cs").load(tmp_path / "data", seed=1).num_vertices == 40
    assert downloads.asked == [f"{source.url}ms_academic_cs.npz"] * 3 and downloads.waits == [1, 2]
    assert (tmp_path / "data" / CS).read_bytes() == downloads.content
    assert not list((tmp_path / "data").glob(".download*"))
    block("coauthor-cs").load(tmp_path / "data", seed=1)
    assert len(downloads.asked) == 3, "what is there is not fetched again"


@pytest.mark.parametrize(("failures", "says"), [(99, "503"), (0, f"SHA-256 begins with {SHA256[:12]}")])
def test_after_the_last_try_one_sentence_says_what_failed(failures, says, tmp_path, downloads):
    """The download, or the file that came, which is not the known one."""
    downloads.content, downloads.failures = cs_file(tmp_path), failures
    said = raw_files.refused("coauthor-cs", tmp_path / "data", says)
    assert CS in said and len(downloads.asked) == 1 + real.RETRIES
    assert not (tmp_path / "data").exists()


def test_without_a_network_that_is_said_in_a_few_words(tmp_path, monkeypatch):
    def downloader(url, path, _):
        try:
            raise socket.gaierror(-2, "Name or service not known")
        except socket.gaierror:
            raise requests.ConnectionError(
                f"HTTPSConnectionPool: Max retries exceeded with url: {url}"
            ) from None

    monkeypatch.setattr(pooch, "HTTPDownloader", lambda: downloader)
    monkeypatch.setattr(pooch.core, "time", SimpleNamespace(sleep=lambda _: None))
    says = "(downloading it failed: its server is not found, as without a network)"
    raw_files.refused("coauthor-cs", tmp_path / "data", says)


def test_the_docs_say_where_every_data_set_comes_from():
    page = sets.PAGE.read_text()
    assert page == sets.with_tables(page, sets.COMMAND, sets.table()), f"run {sets.COMMAND}"


@pytest.mark.real
def test_known_checksums_are_those_of_the_real_files(real_data):
    there = {name for name in real.SETS if real.present(name, real_data)}
    assert there, "no real graphs"
    checked = 0
    for name in there:
        source = real.SETS[name]
        folder = source.folders[0]
        if not (real_data / folder).is_dir():
            continue
        for file in source.files:
            assert pooch.file_hash(str(real_data / folder / file)) == source.sha256[Path(file).name]
            checked += 1
    assert checked, "no real graph lies where it is downloaded to"
