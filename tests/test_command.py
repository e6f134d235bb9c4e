"""`python -m harness` as it is typed: completed by the shell, watched, over loopback, in a folder of
its own.
"""

import re
import sys
import tomllib

import pytest
import torch
from filelock import FileLock, Timeout
from hydra.core.global_hydra import GlobalHydra

from harness import cli
from harness.comm.recorder import cpu_count
from harness.results.reader import Trace
from harness.results.schema import LOCK
from tests.launching import ROOT
from tests.memory import exchanges_through_memory


def test_the_shell_completes_keys_and_options(monkeypatch, capsys):
    offered = {
        "halobench system=sancus system.st": "system.staleness=",
        "halobench system=pip": "system=pipegcn",
        "halobench prepare system=pip": "system=pipegcn",
        "halobench fid": "fidelity\n",
        "halobench cluster m": "measure",
        "halobench report ": "claims html",
        "halobench tune system=pip": "system=pipegcn",
        "halobench run dataset=twin/f": "dataset=twin/flickr dataset=twin/friendster",
        "halobench plan -m system=cagnet,sancus/": "system=cagnet,sancus/official",
    }
    for line, words in offered.items():
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setattr(sys, "argv", ["halobench", "-sc", "query=bash"])
        GlobalHydra.instance().clear()
        cli.main()
        assert capsys.readouterr().out == f"{words}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["halobench"] == "harness.__main__:main"


def test_a_watched_run_tells_what_it_prepares_epoch_loss_accuracy_bytes_and_time_left(place, tmp_path):
    done = place.run("progress=true", "epochs=3", "model.hidden=512", f"cache={tmp_path / 'cache'}")
    assert done.code == 0
    trace = Trace(place.runs()[0]).epochs
    last = trace[trace["epoch"] == 2].iloc[0]
    sent = trace[trace["worker"] == 0]["bytes_sent"].sum() / 1e6
    assert sent > 0.05, "0.0 MB would tell nothing"
    shown = " ".join(done.err.split())
    assert (
        f"epoch 3/3, loss {last['loss']:.4f}, val acc {last['val_acc']:.4f}, {sent:.1f} MB sent by worker 0"
        in shown
    )
    assert re.search(r"\d:\d\d:\d\d", shown), "the time left"
    assert shown.count("preparing the graph") == shown.count("reading the graph") == 1


def test_a_run_says_once_that_it_compiles(place):
    """Of two workers that do, worker 0 alone says so; a finished run is shown without."""
    words = (*place.trouble, "system.how=compile", "system.epoch=1", "epochs=2", "progress=auto")
    done, again = place.run(*words), place.run(*words)
    assert (done.code, again.code) == (0, 0)
    assert done.err.count("compiling loops") == 1 and "compiling" not in again.err


def test_a_key_of_hydras_own_leaves_the_run_what_it_is(place):
    """Hydra composes the config then; without such a key the check of the words has composed it."""
    words = ("workers=1", "epochs=1", "system=sancus", "system.bound=3", "partition=random", "+label=mine")
    assert place.run(*words).code == 0
    again = place.run(*words, "hydra.verbose=false")
    assert again.code == 0 and "finished before" in again.out and len(place.runs()) == 1


def test_threads_are_those_asked_for_or_a_share_of_the_cores(place):
    assert place.run(*place.trouble, "-m", "threads=3,null", "epochs=1").code == 0
    for trace in map(Trace, place.runs()):
        metrics = trace.metrics.query("name == 'threads'")
        assert metrics["value"].tolist() == [trace.config["threads"] or max(1, cpu_count() // 2)] * 2
    assert {Trace(run).config["threads"] for run in place.runs()} == {3, None}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(place):
    done = place.run("device=cuda")
    assert (done.code, done.err) == (2, "error: device=cuda but no CUDA device is visible; give device=cpu\n")
    assert place.runs() == [], "a folder of a run that cannot be would be in the way of every report"


def test_workers_that_share_memory_open_no_socket(place):
    run = place.start("system=digest", "epochs=1000000", "workers=3")
    run.until_epoch(2)
    assert sum(map(exchanges_through_memory, run.family)) == 3
    assert [c for p in (run.process, *run.family) for c in p.net_connections("inet")] == []


def test_workers_of_one_host_are_reached_over_loopback_only_and_their_folder_is_theirs(place):
    run = place.start("epochs=1000000", "transport=sockets")
    run.until_epoch(2)
    assert not any(map(exchanges_through_memory, run.family))
    listening = [c.laddr.ip for p in run.family for c in p.net_connections("inet")]
    assert set(listening) == {"127.0.0.1"}
    (run_dir,) = place.runs()
    with pytest.raises(Timeout):
        FileLock(run_dir / LOCK).acquire(timeout=0)
