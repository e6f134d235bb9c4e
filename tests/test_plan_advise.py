"""`halobench advise`: who is trained, who wins, and by how much."""

import re
import shlex
from types import SimpleNamespace

import pytest
import yaml

from harness.core.cluster import Cluster, Device, Link
from harness.core.cluster_measure import processor
from harness.core.system import Traits
from harness.model.plan import advise
from harness.model.plan.advise import Candidate, chosen, main, verdict
from harness.model.plan.trial import trial
from harness.model.plan.words import parse
from harness.results.reader import STARTED, Trace, find_runs
from harness.run import runner
from tests import traces
from tests.commands import commands
from tests.recorded import recorded
from tests.test_plan import APART, SMALL

PAGE = [command for command in commands() if command.name == "advise"]
CONFIGURED = runner.configured


def candidate(
    name: str,
    epoch_s: float,
    epochs: int | None = None,
    *,
    role: str = "",
    why: str = "",
    steps: int = 1,
    fits: bool | None = None,
) -> Candidate:
    """A system with a modelled epoch, that reached the score after so many epochs."""
    system = SimpleNamespace(role=role, traits=lambda: Traits(steps=steps))
    run = SimpleNamespace(system=system, settings=SimpleNamespace(epochs=60))
    planned = SimpleNamespace(
        run=run,
        seconds=[SimpleNamespace(epoch=epoch_s / 2), SimpleNamespace(epoch=epoch_s)],
        fits=fits,
        lacking="",
        needs=6e9 + epoch_s,
        has=[5e9, 4e9],
    )
    return Candidate(name, [f"system={name}"], planned, why, epochs=epochs)


def test_the_first_that_fit_are_trained_and_the_fastest_of_the_rest():
    found = [
        candidate("a", 1.0, role="control"),
        candidate("b", 2.0, why="does not fit"),
        candidate("c", 3.0),
        candidate("d", 4.0, role="reference"),
        candidate("f", 5.0),
        candidate("g", 6.0),
        candidate("h", 7.0),
    ]
    assert [each.name for each in chosen(found)] == ["c", "f", "g"]
    found[-1].plan.seconds[-1].epoch = found[-1].plan.seconds[0].epoch = 0.5
    assert [each.name for each in chosen(found)] == ["c", "f", "h"]


def test_systems_are_ordered_by_what_their_probes_reach_and_then_by_the_seconds_of_a_step():
    slow, quick, many = candidate("slow", 3.0), candidate("quick", 1.0), candidate("many", 4.0, steps=5)
    assert sorted([slow, quick, many], key=lambda each: each.rank) == [many, quick, slow]
    slow.early_s, quick.early_s = 7.0, 9.0
    assert sorted([slow, quick, many], key=lambda each: each.rank) == [slow, quick, many]


@pytest.mark.parametrize("reaches, rounds", [("a", 1), ("e", 2), ("", 3)])
def test_the_next_three_are_trained_while_none_reaches_the_score(monkeypatch, reaches, rounds):
    exact = candidate("exact", 9.0, role="reference")
    found, trained = [*(candidate(name, 1.0) for name in "abcdefg"), exact], []

    def train(there, given):
        trained.append([each.name for each in there])
        for each in there:
            each.best, each.epochs = 0.5, 7 if each.name in (reaches, "exact") else None
        return 0.6

    monkeypatch.setattr(advise, "train", train)
    assert advise.train_best(found, exact, None) == 0.6
    assert trained == [["exact", *"abc"], ["exact", *"def"], ["exact", "g"]][:rounds]


def test_a_trials_time_counts_what_its_first_epoch_fetches():
    each = candidate("a", 1.0, 3)
    assert each.reached_s == 3.0
    each.trial = SimpleNamespace(times=SimpleNamespace(epoch=2.0), ends=[50.0, 52.0, 54.0, 56.0])
    assert each.reached_s == 54.0


def test_the_winner_needs_least_time_and_not_fewest_epochs():
    exact = candidate("exact", 4.0, 10, role="reference")
    found = [candidate("slow", 1.0, 30), candidate("quick", 2.0, 12), exact, candidate("never", 0.1)]
    lines, winner = verdict(found, exact, 0.9)
    assert winner is found[1] and winner.command == "halobench run system=quick"
    assert lines[0].startswith("take quick: 24 s modelled to a validation score of 0.9000")
    assert lines[1:3] == [
        "slow needs 1.25 times as long, which the model does not tell apart",
        "exact needs 1.67 times as long, which the model does not tell apart",
    ]
    found[0].epochs = 60
    assert "slow needs 2.5 times as long" in verdict(found, exact, 0.9)[0]
    assert not any("never" in line or "improving" in line or "fit" in line for line in lines)
    winner.words.append("results=a folder")  # which a shell must not take apart
    assert shlex.split(winner.command)[2:] == ["system=quick", "results=a folder"]
    exact.epochs = 59
    assert any("still improving after 60 epochs" in line for line in verdict(found, exact, 0.9)[0])


@pytest.mark.parametrize("epochs, said", [(5, "remote rows do not matter"), (None, "remote rows matter")])
def test_the_controls_verdict_comes_first_and_it_never_wins(epochs, said):
    exact = candidate("exact", 4.0, 10, role="reference")
    control = candidate("none", 0.1, epochs, role="control")
    control.best = 0.7
    lines, winner = verdict([control, exact, candidate("quick", 2.0, 12)], exact, 0.9)
    assert lines[0].startswith(said) and lines[1].startswith("take quick") and winner.name == "quick"


def test_one_device_is_enough_where_its_epoch_is_no_slower_than_the_best_systems():
    exact, quick = candidate("exact", 4.0, 10, role="reference"), candidate("quick", 2.0, 12)
    alike, slower = (verdict([exact, quick], exact, 0.9, alone)[0][0] for alone in (2.0, 2.1))
    assert alike.startswith("too small to matter: one device is enough") and slower.startswith("take quick")


@pytest.mark.parametrize("more, assumed", [([], True), (["device=cpu"], False)])
def test_a_gpu_whose_launches_take_no_time_gets_an_assumption_that_is_printed(more, assumed):
    given = parse(["system=vanilla", *SMALL, "cluster=cdfgnn", *more])
    assert {device.launch_us for device in given.cluster.devices} == {5.0 if assumed else None}
    assert any("launch_us=5" in said for said in given.assumed) == assumed
    assert not parse(["system=vanilla", *SMALL, "cluster=l4"]).assumed


def test_exact_training_that_does_not_fit_is_held_to_but_never_named():
    exact = candidate("exact", 1.0, 10, role="reference", fits=False)
    lines, winner = verdict([exact, other := candidate("other", 2.0, 12)], exact, 0.9)
    assert winner is other and not any("exact needs" in line for line in lines)
    assert "exact training does not fit: it was trained here for its score alone" in lines
    other.epochs = None
    lines, winner = verdict([exact, other], exact, 0.9)
    assert winner is None and lines[0] == "no system that fits comes to a validation score of 0.9000"


def test_the_system_that_needs_least_is_one_of_those_that_do_not_fit():
    exact = candidate("exact", 2.0, role="reference", fits=False)
    shared = candidate("shared", 1.0, why="shares memory: one host only", fits=True)
    assert verdict([exact, shared], exact, None)[0] == [
        "no system fits: exact, which needs least, takes 6 GB of a device that has 4: give more workers, a"
        " smaller model, or devices with more memory"
    ]


def test_work_lasts_as_traced_on_processors_of_this_machines_kind(place):
    """On others as a roofline says, and nothing that is not counted takes time on GPUs."""
    ended = place.run("system=vanilla", *SMALL)
    assert ended.code == 0, ended.err
    (run,) = place.runs("*/vanilla-*")
    fast = {"fp32_tflops": 1e9, "memory_gbytes_per_s": 1e9, "launch_us": 0.0}
    own, other = (
        Cluster("a", [Device(kind, host=host, **fast) for host in (0, 1)], between=Link(gbytes_per_s=1e9))
        for kind in (processor(), "another")
    )
    as_traced, counted, on_gpu = (
        trial(run, cluster, None, processors).times
        for cluster, processors in ((own, True), (other, True), (own, False))
    )
    busy = [max(each.compute + each.rest for each in times.workers) for times in (as_traced, counted, on_gpu)]
    assert busy[0] > busy[1] > busy[2] >= 0
    trace = Trace(run)
    spent = trace.epochs[trace.epochs.epoch > 0].groupby("worker").cpu_s.mean().max()
    assert busy[0] > 0.7 * spent  # in wall seconds, which others' work lengthens


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    """Words of where runs go, of five systems: two share memory between workers, and one is asynchronous."""
    monkeypatch.setattr(runner, "start", place.sweep)
    only(monkeypatch, "vanilla", "zero_halo", "distdgl", "digest", "digest_a")
    return [f"results={tmp_path}", f"cache={place.folder / 'cache'}"]


@pytest.fixture
def two(here, monkeypatch):
    """The same of two systems."""
    only(monkeypatch, "vanilla", "local")
    return here


def only(monkeypatch, *systems: str) -> None:
    names = CONFIGURED()
    monkeypatch.setattr(runner, "configured", lambda: {name: names[name] for name in systems})


def test_a_system_whose_run_fails_is_out_and_the_others_are_not(two, tmp_path, monkeypatch, capsys, refused):
    trained, failing = recorded(tmp_path / "trained", [[0.01, 0.02]] * 4), {"local"}

    def train_here(runs, given, more):
        bad = failing - {"vanilla"} if "epochs=2" in more else failing  # exact training fails after its probe
        return [None if words[0].removeprefix("system=") in bad else trained for words in runs]

    monkeypatch.setattr(advise.trial, "train_here", train_here)
    assert main([*SMALL, *APART, "probe=2", *two]) == 0
    said = capsys.readouterr().out
    assert said.count("its run failed") == 1 and "take vanilla" in said
    failing.add("vanilla")
    refused(main, [*SMALL, *APART, "probe=2", *two], "exact training failed here")


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, id=str(i), marks=pytest.mark.nightly(25) if i else ()) for i, c in enumerate(PAGE)],
)
def test_the_pages_command_names_a_winner_with_its_margins(command, here, tmp_path, capsys):
    """On a small twin, with few epochs."""
    own = ("dataset", "workers", "sample", "epochs")
    short = [word for word in command.rest if not word.startswith(own)]
    assert main([*short, *SMALL, "probe=2", *here]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    trained = {path.parent.name.split("-")[0] for path in tmp_path.glob("started/*/*/summary.json")}
    assert trained == {"vanilla", "distdgl", "zero_halo"}
    # What passing messages between hosts costs is traced, so that it is replayed.
    configs = tmp_path.glob("started/*/*/config.yaml")
    assert {yaml.safe_load(path.read_text())["transport"] for path in configs} == {"sockets"}
    assert (
        said.count("its scores elsewhere are not known") == 1
        and said.count("one host only") == 2
        and "control" in said
        and "exact training" in said
    )
    assert re.search(r"^remote rows (do not )?matter", said, re.M)
    winner = re.search(r"^take (\w+): [\d.e-]+ s modelled to a validation score of 0\.\d{4}", said, re.M)[1]
    assert winner in trained
    assert re.search(rf"^halobench run system={winner} ", said, re.M)


def test_nothing_is_trained_where_no_system_fits(here, tmp_path, capsys):
    """Memory that no plan fits into, and no probes, so that mini-batches are not known."""
    small = tmp_path / "small.yaml"
    devices = [{"host": 0, "memory_gb": 0.1, "fp32_tflops": 1, "memory_gbytes_per_s": 1}] * 2
    small.write_text(yaml.safe_dump({"name": "small", "devices": devices, "inside": {"gbytes_per_s": 1}}))
    words = [f"cluster={small}", "probe=0"]
    assert main([*SMALL, *words, *here]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    least = re.search(r"no system fits: (\w+), which needs least, takes [\d.]+ GB of a device that has", said)
    assert least[1] != "zero_halo", "the control never wins"
    assert "only a run tells what it sends: distdgl" in said and "halobench run" not in said
    assert not list(tmp_path.glob("started/*/*/summary.json"))


@pytest.mark.parametrize(
    "words, said",
    [
        (["system=vanilla", *SMALL, *APART], "advise chooses among all systems: leave system= out"),
        (SMALL, "no cluster is given: add cluster=NAME"),
        ([*SMALL, *APART, "workers=20"], "workers=20 is more than cluster=hosts/10g has devices"),
        ([*SMALL, *APART, "seed=1,2"], "several values of a key are for halobench plan"),
    ],
)
def test_what_cannot_be_advised_is_refused_in_a_sentence(words, said, two, refused):
    refused(main, [*words, *two], said)


def test_reports_leave_out_what_advise_has_started_unless_it_is_named(tmp_path):
    run = traces.finished(tmp_path / "cora" / "run")
    probed = traces.finished(tmp_path / STARTED / "cora" / "run")
    assert find_runs([tmp_path]) == [run]
    assert find_runs([tmp_path / STARTED]) == [probed]
