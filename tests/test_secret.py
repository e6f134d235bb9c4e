"""The secret of a run: where it stands, who reads it, and where it does not get."""

import os

import pytest

from harness.base.errors import InputError
from harness.run import prepare, secret


def test_a_run_folder_has_one_that_only_its_user_reads(tmp_path):
    before = os.umask(0)  # one that leaves every right
    try:
        secret.make(tmp_path)
    finally:
        os.umask(before)
    made = secret.read(tmp_path)
    assert len(made) == 64 and (tmp_path / secret.FILE).stat().st_mode & 0o777 == 0o600
    secret.make(tmp_path)
    assert secret.read(tmp_path) == made and [p.name for p in tmp_path.iterdir()] == [secret.FILE]
    prepare._check_ours(tmp_path)
    secret.forget(tmp_path)
    assert secret.read(tmp_path) is None
    secret.forget(tmp_path)


def test_the_environment_is_asked_first(tmp_path, monkeypatch):
    secret.make(tmp_path)
    monkeypatch.setenv(secret.VARIABLE, " sixteen-or-more- ")
    assert secret.read(tmp_path) == secret.read(tmp_path / "nowhere") == b"sixteen-or-more-"


def test_a_short_one_is_refused_and_not_printed(tmp_path, monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, "tiger")
    with pytest.raises(
        InputError, match="^HALOBENCH_SECRET has 5 characters and could be guessed; give 16"
    ) as error:
        secret.read(tmp_path)
    assert "tiger" not in str(error.value)


def test_it_is_neither_read_nor_written_through_a_link(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    for name in (secret.FILE, secret.PART):
        (tmp_path / name).symlink_to(other)
    assert secret.read(tmp_path) is None
    secret.make(tmp_path)
    assert other.read_text() == "mine" and secret.read(tmp_path) != b"mine"
