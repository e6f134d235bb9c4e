"""Checksums: every changed, lost or added byte shows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base import checksum
from harness.base.checksum import Damaged

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=8,
)


@given(content=st.binary(max_size=200), block=st.sampled_from([1, 7, 64, 1 << 20]), data=st.data())
def test_a_changed_file_has_another_checksum(tmp_path_factory, content, block, data):
    path = tmp_path_factory.mktemp("files") / "file"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checksum, "BLOCK", block)
        path.write_bytes(content)
        whole = checksum.of_file(path)
        assert whole == checksum.of_file(path) and len(whole) == 32
        cut = data.draw(st.integers(0, len(content)))
        assert checksum.of_file(path, cut) == checksum.of_file(_write(path, content[:cut]))
        for other in (content[:cut], content + b"\0", content[cut:] + content[:cut]):
            assert (checksum.of_file(_write(path, other)) == whole) == (other == content)


def _write(path, content):
    path.write_bytes(content)
    return path


@given(content=st.binary(max_size=100), data=st.data())
def test_any_damage_to_a_sealed_file_shows(tmp_path_factory, content, data):
    path = _write(tmp_path_factory.mktemp("files") / "file", content)
    with pytest.raises(Damaged):
        checksum.check_sealed(path)
    sealed = content + checksum.line_of(path).encode()
    checksum.check_sealed(_write(path, sealed))
    damaged = bytearray(sealed)
    damaged[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        checksum.check_sealed(_write(path, damaged))


@given(
    value=st.dictionaries(st.text(), VALUES, max_size=4), more=st.dictionaries(st.text(), VALUES, min_size=1)
)
def test_a_changed_object_is_refused(value, more):
    value.pop(checksum.KEY, None), more.pop(checksum.KEY, None)
    stored = json.loads(json.dumps(checksum.sealed(value)))
    assert checksum.unsealed(stored) == value
    with pytest.raises(Damaged):
        checksum.unsealed(value)
    assert checksum.sealed({**stored, **more}) == checksum.sealed({**value, **more})
    if json.dumps({**stored, **more}, sort_keys=True) != json.dumps(stored, sort_keys=True):
        with pytest.raises(Damaged, match="its checksum is not that of its content"):
            checksum.unsealed({**stored, **more})
