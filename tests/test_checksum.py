"""Checksums: every changed, lost or added byte shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base import checksum


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
