"""The campaign of `make torture`: a share of it at night, and that it would see what it looks for."""

import random
import secrets
import signal
import socket
import subprocess

import psutil
import pytest
import torch.distributed as dist

from tests.torture import stored
from tests.torture.__main__ import campaign
from tests.torture.given import Given
from tests.torture.impostor import Impostor
from tests.torture.stored import Stored
from tests.torture.stranger import Stranger
from tests.torture.tally import REFUSED, Tally, is_sentence
from tests.torture.watched import Watch


@pytest.mark.nightly(280)
def test_a_share_of_the_campaign_drawn_anew(place, tmp_path):
    tally = campaign(place, tmp_path, seed=secrets.randbelow(10**6), seconds=150)
    assert tally.rounds and not tally.failures, "\n".join(tally.failures)


def rounds(folder, count: int) -> Tally:
    tally = Tally(seed=1)
    made = Stored(folder, tally, random.Random(1))
    for _ in range(count):
        made.report()
    return tally


def test_what_is_damaged_and_what_somebody_gives_is_counted_by_what_came_of_it(tmp_path, monkeypatch):
    tally = rounds(tmp_path / "stored", 15)
    counted = tally.outcomes["file of a finished run"]
    assert not tally.failures and counted[REFUSED] and counted.total() == tally.count() == 15
    assert f"| file of a finished run | 15 | {counted[REFUSED]} |" in tally.table()
    monkeypatch.setattr("tests.torture.given.EXAMPLES", 2)
    tally = Tally(seed=1)
    made = Given(tmp_path, tally, random.Random(1))
    for each in (made.linked, made.imported, made.argued):
        each()
    assert not tally.failures and tally.outcomes["value of a key"].total() > 0
    assert tally.outcomes["run folder with a link"][REFUSED] == 1


def test_another_result_and_a_traceback_are_failures_that_can_be_had_again(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "told_of", str)  # another for each folder
    tally = rounds(tmp_path / "other", 5)
    assert tally.failures and "seed 1, round 0, file of a finished run: " in tally.failures[0]
    assert tally.outcomes["file of a finished run"]["failed"] == len(tally.failures)
    monkeypatch.setattr(stored, "told_of", lambda run: {}[run.name] if run.name == "damaged" else "")
    assert "KeyError" in rounds(tmp_path / "raised", 1).failures[0]


def test_an_impostor_reaches_whatever_listens():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with Impostor(psutil.Process(), random.Random(1)) as impostor:
            for _ in range(3):
                listening.accept()[0].close()
        assert impostor.reached >= 3


def test_one_error_beside_notes_is_a_sentence():
    assert is_sentence("note: a\nerror: b is wrong; mend it\nwarning: c\n")
    assert not is_sentence("error: b\nerror: c\n") and not is_sentence("") and not is_sentence("Traceback\n")


def test_a_round_is_held_to_memory_time_and_its_own_folder(tmp_path, place, monkeypatch):
    tally = Tally(seed=1)
    monkeypatch.setattr("tests.torture.watched.MOST", 0)
    monkeypatch.setattr("tests.torture.watched.LONGEST", 0.0)
    bystander = subprocess.Popen(["sleep", "300"])
    with Watch(place, tmp_path, tally) as watch:
        run = place.start("epochs=1000000")
        assert run.end().code == -signal.SIGKILL
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "left").touch()
        watch.check()
        watch.check()
    assert {failure.split(", ")[2].partition(":")[0] for failure in tally.failures} == {
        "hang",
        "memory",
        "file outside",
    }
    assert tally.outcomes["file outside"].total() == 1
    assert bystander.poll() is None, "what was there before is none of its business"
    bystander.kill()
    bystander.wait()


def test_a_stranger_writes_into_a_store_until_it_is_gone():
    store = dist.TCPStore("127.0.0.1", 0, None, True)
    with Stranger(store.port, random.Random(1)) as stranger:
        store.wait(stranger.keys)
    assert stranger.written
    del store
    with Stranger(1, random.Random(1)):
        pass
