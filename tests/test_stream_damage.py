"""Streams of a run that has not finished carry a checksum per batch."""

import shutil
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.results import reader, writer
from tests import traces


@pytest.fixture(scope="module")
def going(tmp_path_factory):
    """A run of 3 epochs that has not been finalised."""
    folder = traces.prepare(tmp_path_factory.mktemp("going") / "run", traces.config(epochs=3))
    traces.stream(folder, range(3))
    return folder


@given(data=st.data())
def test_a_changed_bit_of_a_stream_is_refused_or_changes_no_row(going, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(going, folder)
    path = data.draw(st.sampled_from(sorted((folder / "stream").iterdir())))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    table = reader.STREAM.fullmatch(path.name)["table"]
    whole = reader.Tables(going).table(table).to_pylist()
    try:
        reader.check_streams(folder, 1)
        found = reader.Tables(folder).table(table).to_pylist()
    except InputError as error:
        assert "\n" not in str(error) and str(path) in str(error)
        return
    # What cannot be read as a batch ends the stream, as where its writer died; no other row comes of it.
    assert all(row in whole for row in found)


@pytest.mark.parametrize("listed", [True, False])
def test_a_run_that_is_finalised_while_it_is_read_keeps_its_rows(going, tmp_path, monkeypatch, listed):
    folder, streams = tmp_path / "run", reader.streams
    shutil.copytree(going, folder)
    whole = {table: reader.Tables(going).table(table).to_pylist() for table in reader.TABLES}

    def finalised(run_dir):
        found = list(streams(run_dir))
        monkeypatch.setattr(reader, "streams", streams)
        writer.finalise(run_dir)
        return found

    if listed:  # else while the epochs of each stream are read
        tables = reader.Tables(folder)
        writer.finalise(folder)
    else:
        monkeypatch.setattr(reader, "streams", finalised)
        tables = reader.Tables(folder)
    assert not (folder / "stream").exists()
    assert {table: tables.table(table).to_pylist() for table in reader.TABLES} == whole


def test_a_value_that_was_changed_in_place_is_refused_before_the_run_goes_on(going, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(going, folder)
    (path,) = folder.glob("stream/epochs-worker1-*.arrow")
    loss, other = struct.pack("<d", 1 / 3), struct.pack("<d", 1 / 4)
    content = path.read_bytes()
    assert content.count(loss) == 1
    path.write_bytes(content.replace(loss, other))
    with pytest.raises(InputError, match=r"epochs-worker1.* is damaged \(the checksum of a batch is not"):
        reader.check_streams(folder, 1)
    reader.check_streams(folder, 0)  # of this attempt, which the other worker may be writing now
    with pytest.raises(InputError, match="is damaged"):
        writer.finalise(folder)
