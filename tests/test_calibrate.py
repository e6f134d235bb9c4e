"""The machine measured as a cluster: what is written is read again, and predicts; no speed is judged here but
by the nightly test."""

import pytest
import yaml

from harness.comm.work import KINDS
from harness.dev.bench.load import Load, Watch
from harness.model.calibrate import __main__ as calibrate
from harness.model.calibrate import links, speeds
from harness.model.calibrate.links import Measured
from harness.model.calibrate.speeds import Shapes, Speeds, Spread
from harness.model.replay.__main__ import main as replay
from harness.model.replay.roofline import Roofline
from harness.model.replay.settings import cluster_of, parse
from harness.results.reader import Trace
from harness.run import runner
from tests.predicted import held

SMALL = Shapes((4, 8), (64, 128), (2, 4), 1 << 10, (8,), (1 << 12, 1 << 14), 1 << 20)
LINKS = [
    Measured("memory", Spread(1e-4, 9e-5, 2e-4), Spread(2e9, 1e9, 3e9)),
    Measured("sockets", Spread(2e-4, 1e-4, 3e-4), Spread(1e9, 5e8, 2e9)),
]


@pytest.fixture(scope="module")
def small() -> Speeds:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(speeds, "LEAST", 0.0)  # a few calls each: no speed is judged here
        return speeds.measure(SMALL)


def test_every_kind_is_measured_over_a_grid(small):
    assert {rate.kind for rate in small.rates} == set(KINDS)
    made = calibrate.cluster_of(small, LINKS, 2, "here")
    lasts = Roofline(made, 2)  # which refuses what is no grid
    assert lasts.efficiencies.keys() == set(KINDS)
    for rate in small.rates:
        assert 0 < rate.low <= rate.efficiency <= rate.high


def test_a_case_takes_what_it_was_measured_to_take():
    """Efficiency and launch give back the seconds from which they were made."""
    found = Speeds(*(Spread(each, each, each) for each in (1e10, 1e12, 1e-6)))
    for case in (next(speeds._dense(SMALL)), next(speeds._sparse(SMALL)), next(speeds._passes(SMALL))):
        found.rates = [speeds._rate(case, Spread(5e-4, 4e-4, 9e-4), found)]
        made = calibrate.cluster_of(found, LINKS, 1, "here")
        lasts = Roofline(made, 1)
        told = sum(lasts.seconds(each, made.devices[0]) for each in case.does)
        assert told == pytest.approx(5e-4, rel=0.01)
        assert found.rates[0].low < found.rates[0].efficiency < found.rates[0].high


@pytest.mark.parametrize("transport", [links.MEMORY, "sockets"])
def test_two_processes_exchange_over_each_transport(pool, transport):
    few, many = pool.run(links.exchange, 2, 1 << 16, 3, transport=transport)[0]
    assert len(few) == len(many) == 3 and min(*few, *many) > 0


def test_a_links_rate_is_what_a_large_exchange_takes_beyond_a_small_one():
    found = links._of("memory", 1000, [1.0, 2.0, 3.0], [12.0, 7.0, 22.0])
    assert found.latency == (2.0, 1.0, 3.0)
    assert found.rate == (100.0, 50.0, 200.0)
    assert links._of("memory", 1000, [5.0], [1.0]).rate[0] == 1000 / 0.1  # noise alone


def named(monkeypatch, found: Speeds) -> None:
    """Nothing is measured: this is what was found."""
    monkeypatch.setattr(speeds, "measure", lambda *_, **__: found)
    monkeypatch.setattr(links, "measure", lambda: LINKS)
    monkeypatch.setattr(calibrate, "keep_freed_memory", lambda: None)


def test_the_command_writes_a_cluster(monkeypatch, tmp_path, capsys, small):
    named(monkeypatch, small)
    out = tmp_path / "mine.yaml"
    assert calibrate.main(["--out", str(out), "--devices", "3"]) == 0
    told = capsys.readouterr().out
    assert out.read_text() in told and f"written: {out}" in told
    found = cluster_of(str(out))
    assert (found.name, len(found.devices), found.host_cores) == ("mine", 3, calibrate.cpu_count())
    assert found.rates == small.rates
    assert found.devices[0].memory_gbytes_per_s == pytest.approx(small.copied[0] / 1e9, rel=1e-3)
    assert found.devices[0].fp32_tflops == pytest.approx(small.multiplied[0] / 1e12, rel=1e-3)
    assert (found.inside.gbytes_per_s, found.inside.latency_us) == (2, 100)
    assert found.between.medium == "sockets over loopback"
    assert calibrate.main(["--out", str(out), "--devices", "2", "--hosts", "2"]) == 0
    found = cluster_of(str(out))
    assert [(device.host, device.id) for device in found.devices] == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert found.devices[0].memory_gb == pytest.approx(found.host_memory_gb / 2, rel=1e-3)
    capsys.readouterr()
    for words, said in (
        (["--out", str(tmp_path / "mine.txt")], "is not named FILE.yaml"),
        (["--out", "/no/such/mine.yaml"], "out=/no/such/mine.yaml is no place for a file"),
        (["--hosts", "0"], "--hosts=0"),
    ):
        assert calibrate.main(words) == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("others", [0.0, 0.5])
def test_a_busy_machine_is_said_to_be_busy(small, others):
    made = calibrate.cluster_of(small, LINKS, 1, "here")
    text = calibrate.as_yaml(made, small, LINKS, Load(1.0, 2.0, others))
    assert ("The machine was busy" in text) == (others > 0)
    assert yaml.safe_load(text)["rates"][0]["kind"] == "dense"


def test_a_run_is_replayed_on_the_machine_as_measured(place, monkeypatch, tmp_path, capsys, small):
    """Any system's trace has what a roofline needs."""
    named(monkeypatch, small)
    out = tmp_path / "local.yaml"
    assert calibrate.main(["--out", str(out), "--devices", "2"]) == 0
    ended = place.run("system=bns", "epochs=2", "workers=2")
    assert ended.code == 0, ended.err
    (run,) = place.runs()
    assert replay([str(run), f"cluster={out}", "compute=roofline"]) == 0
    told = capsys.readouterr().out
    assert "assumed, since the cluster does not say" not in told.split("modelled on")[1].split("latency")[0]
    _, replayer, _ = parse([str(run), f"cluster={out}", "compute=roofline"])
    replayer.replay(Trace(run))
    (lasts,) = replayer.rooflines.values()
    assert {"dense", "sparse", "stream", "pack", "sample"} <= lasts.met and not lasts.assumed
    assert lasts.modelled > 0


NIGHTLY = ["vanilla", "cagnet", "cdfgnn", "pipegcn", "adaqp"]


@pytest.mark.nightly(300)
def test_the_measured_machine_predicts_the_work_of_runs(place, monkeypatch, tmp_path, capsys):
    """By the profile alone, nothing fitted on the run: CPU seconds of what is counted, over all workers,
    since wall seconds hold the work of others; the ratios are printed. Within a quarter, and within a factor
    of two where others disturb caches and clocks."""
    monkeypatch.setattr(runner, "start", place.sweep)
    out, watch = tmp_path / "local.yaml", Watch()
    assert calibrate.main(["--out", str(out), "--devices", "2"]) == 0
    ratios = {each.system: each.counted for each in held(tmp_path, out, NIGHTLY)}
    load = watch.load()
    with capsys.disabled():
        print(f"\n{ratios}; {load}")
    most = 2.0 if load.busy else 1.25
    assert all(max(ratio, 1 / ratio) <= most for ratio in ratios.values()), (ratios, str(load))
