"""Downloads from a local server: tried again, and held to known checksums."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pooch
import pytest

from harness.base.errors import InputError
from harness.data import real
from harness.data.sources import load
from tests import raw_files, sets
from tests.raw_files import block, small

CS = "CS/raw/ms_academic_cs.npz"


class Server:
    """Serves `files` by name; answers the first `failures` requests with 503. Notes what was asked for."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.failures = 0
        self.asked: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = Path(self.path).name
                server.asked.append(name)
                server.failures -= 1
                status = 503 if server.failures >= 0 else 200 if name in server.files else 404
                body = server.files.get(name, b"") if status == 200 else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    """In the place of every set's own; the waits between tries are noted and not waited for."""
    made = Server()
    for name, source in real.DATASETS.items():
        if source.url:
            monkeypatch.setitem(real.DATASETS, name, dataclasses.replace(source, url=made.url))
    made.waits = []
    monkeypatch.setattr(pooch.core.time, "sleep", made.waits.append)
    yield made
    made.close()


def cs_file(folder: Path, seed: int = 0) -> bytes:
    raw_files.write_attributed(folder, "written.npz", small(seed=seed))
    return (folder / "raw" / "written.npz").read_bytes()


def known(monkeypatch, content: bytes) -> None:
    other = {Path(CS).name: hashlib.sha256(content).hexdigest()}
    source = dataclasses.replace(real.DATASETS["coauthor-cs"], sha256=other)
    monkeypatch.setitem(real.DATASETS, "coauthor-cs", source)


def test_a_download_that_fails_is_tried_again(tmp_path, server, monkeypatch):
    server.files["ms_academic_cs.npz"] = content = cs_file(tmp_path)
    known(monkeypatch, content)
    server.failures = 2
    assert load(block("coauthor-cs"), tmp_path / "data", seed=1).num_vertices == 40
    assert server.asked == ["ms_academic_cs.npz"] * 3 and server.waits == [1, 2]
    assert (tmp_path / "data" / CS).read_bytes() == content
    assert not list((tmp_path / "data").glob(".download*"))
    load(block("coauthor-cs"), tmp_path / "data", seed=1)
    assert len(server.asked) == 3, "what is there is not fetched again"


def test_after_the_last_try_one_sentence_says_what_failed(tmp_path, server):
    server.failures = 99
    with pytest.raises(InputError) as error:
        load(block("coauthor-cs"), tmp_path / "data", seed=1)
    assert "503" in str(error.value) and CS in str(error.value) and "\n" not in str(error.value)
    assert len(server.asked) == 1 + real.RETRIES
    assert not (tmp_path / "data").exists()


def test_a_file_of_another_checksum_than_the_known_is_refused(tmp_path, server, monkeypatch):
    server.files["ms_academic_cs.npz"] = cs_file(tmp_path)
    with pytest.raises(InputError) as error:
        load(block("coauthor-cs"), tmp_path / "data", seed=1)
    assert f"SHA-256 begins with {real.DATASETS['coauthor-cs'].sha256['ms_academic_cs.npz'][:12]}" in str(
        error.value
    )
    assert len(server.asked) == 1 + real.RETRIES and not (tmp_path / "data" / CS).exists()


def test_the_docs_say_where_every_data_set_comes_from():
    page = sets.PAGE.read_text()
    assert page == sets.with_tables(page, sets.COMMAND, sets.table()), f"run {sets.COMMAND}"


@pytest.mark.real
def test_known_checksums_are_those_of_the_real_files(real_data):
    there = {name for name in real.DATASETS if real.present(name, real_data)}
    assert there, "no real graphs"
    for name in there:
        source = real.DATASETS[name]
        folder = source.folders[0]
        if not (real_data / folder).is_dir():
            continue
        for file in source.files:
            assert pooch.file_hash(str(real_data / folder / file)) == source.sha256[Path(file).name]
