"""`halobench plan`: what it says before a run, against the run; its rule for other scales; grids by their
published formulas; its refusals.
"""

import csv
import functools
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.base.errors import InputError
from harness.core.cluster import Cluster, Device, Link
from harness.model.plan.__main__ import first_line, main, table_rows
from harness.model.plan.grids import communication, grids
from harness.model.plan.plan import Plan, grown, plan
from harness.model.plan.sized import PROCESS
from harness.model.plan.trial import Probe
from harness.model.plan.words import parse
from harness.results import files
from harness.run import runner
from tests.commands import commands
from tests.launching import Started

PAGE = [command for command in commands() if command.name == "plan"]
APART = ["cluster=hosts/10g", "per_host=1"]
OWN = ["dataset=npz", "dataset.path=own.npz", "workers=2"]
SMALL = ["dataset=twin/flickr", "dataset.scale=0.005", "dataset.split=random", "workers=2", "epochs=4"]


@pytest.fixture
def here(place, tmp_path, monkeypatch):
    """Words of where runs go, which `place` starts."""
    monkeypatch.setattr(runner, "start", place.sweep)
    return [f"results={tmp_path}", f"cache={place.folder / 'cache'}"]


def planned(words: list[str], folder: Path) -> list[dict[str, str]]:
    """The rows of its table."""
    assert main([*words, "--csv", str(folder / "plan.csv")]) == 0
    with open(folder / "plan.csv") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(launcher):
    """What gives the plan of words, which it makes once."""

    @functools.cache
    def of(*words: str) -> Plan:
        given = parse([*words, f"cache={launcher.folder / 'cache'}"])
        return plan(given.runs[0][1], given.cluster, given.how.sample, given.how.per_host)

    return of


@pytest.fixture(scope="module")
def trained(launcher, tmp_path_factory) -> tuple[list[str], Path]:
    """The words of a run that has finished in a folder of its own, and its summary's file."""
    folder = tmp_path_factory.mktemp("trained")
    words = ["system=vanilla", "wire=bfloat16", *SMALL, "device=cpu", "progress=false", f"results={folder}"]
    words.append(f"cache={launcher.folder / 'cache'}")
    assert Started(launcher, words).end().code == 0
    (path,) = folder.glob("*/*/summary.json")
    return words, path


def test_a_dry_run_says_what_a_sweep_sends_and_how_long_it_takes(place, trained, capsys, refused):
    words, path = trained
    assert cli.main(["run", "--dry", "-m", *words, "seed=1,2"]) == 0
    said, known = capsys.readouterr().out, "2 runs, 1 of them finished before; the others take about "
    assert f"all runs together send {2 * files.read_json(path)['bytes_total'] / 1e6:.3f} MB" in said
    assert re.search(rf"{known}\d+ s by the latest", said)
    assert list(path.parents[2].glob("*/*/summary.json")) == [path], "nothing is trained"
    assert known in Started(place, ["-m", *words, "seed=1,2"]).end().err
    for word, says in {  # as the run itself says
        "cluster.host_cores=x": "cluster.host_cores=x is not a whole number",
        "device=tpu": 'device="tpu" is not known; did you mean "cpu"?',
    }.items():
        refused(cli.main, ["run", "--dry", *words, word], says)
    assert cli.main(["run", "--dry", "-m", *words, "device=auto,cpu"]) == 0


def test_a_plan_is_what_a_run_sends_and_holds(trained, tmp_path, capsys):
    words, path = trained
    rows = planned([*words, *APART], tmp_path)
    assert capsys.readouterr().out.startswith("fits: ")
    summary = files.read_json(path)
    sent = {name: sum(parts.values()) for name, parts in summary["bytes_epoch_by_purpose"].items()}
    for row in rows:
        assert (
            float(row["bytes_least"]) == float(row["bytes_most"]) == pytest.approx(sent.pop(row["purpose"]))
        )
    assert not any(sent.values())
    later = (summary["epochs"] - 1) * sum(float(row["bytes_least"]) for row in rows)
    assert float(rows[0]["first_epoch_bytes_least"]) + later == pytest.approx(summary["bytes_total"])
    # In a fresh clone the workers compile their loops meanwhile, which takes 100 MB.
    assert 0.7 < float(rows[0]["memory_bytes"]) / summary["peak_rss_max"] < 1.2
    assert float(rows[0]["modelled_epoch_s"]) > 0


@pytest.mark.nightly(15)
@pytest.mark.parametrize(
    "system", ["vanilla", "vanilla system.features=refetch", "sancus", "digest", "lean", "llcg"]
)
def test_memory_is_planned_where_data_is_as_much_as_the_process(system, place, here, tmp_path):
    words = [*f"system={system} dataset=twin/reddit dataset.scale=0.2 workers=4 epochs=3".split()]
    words += ["model.hidden=128", "device=cpu", *here]
    (row, *_) = planned([*words, "cluster=l4"], tmp_path)
    assert Started(place, [*words, "progress=false"]).end().code == 0
    (path,) = tmp_path.glob("*/*/summary.json")
    measured = files.read_json(path)["peak_rss_max"]
    assert measured > 1.5 * PROCESS
    assert float(row["memory_bytes"]) == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(
    "name, range_said", [("cdfgnn", True), pytest.param("distdgl", False, marks=pytest.mark.nightly(5))]
)
def test_a_probe_tells_what_only_training_does(name, range_said, here, tmp_path, capsys):
    words = [f"system={name}", *SMALL, *here, *APART]
    (row, *_) = planned(words, tmp_path)
    said = capsys.readouterr().out
    assert not row["probed_bytes"] and ("depends on training" in said) == range_said
    assert said.startswith("fits" if range_said else "whether it fits is not planned")
    rows = planned([*words, "probe=3"], tmp_path)
    assert "probed: 3 epochs here sent" in capsys.readouterr().out
    (path,) = tmp_path.glob("started/*/*/summary.json")
    sent = float(rows[0]["probed_bytes"])
    assert sent == sum(files.read_json(path)["bytes_epoch"].values()) > 0
    if range_said:
        least, most = (sum(float(each[end]) for each in rows) for end in ("bytes_least", "bytes_most"))
        assert least < sent < most


def test_a_straggler_and_the_kernel_are_planned(made):
    words = ["system=vanilla", *SMALL, "cluster=hosts/10g", "device=cpu"]
    plain, slow, other = (
        made(*words, *more) for more in ((), ("straggler=delayed", "straggler.delay=2"), ("kernel=torch",))
    )
    # The delay, and half of its spread.
    assert slow.seconds[0].epoch == pytest.approx(plain.seconds[0].epoch + 2.01, rel=1e-3)
    assert (other.memory["kept"] != plain.memory["kept"]).all(), "entries have values, and no rows are packed"


def test_a_probe_of_a_smaller_twin_does_not_say_whether_the_run_fits():
    made = SimpleNamespace(lacking="values", total=np.zeros(2), sample=0.1, has=[1e9, 1e9])
    found = Probe(10, 0.0, 0.6e9, "")
    assert "from which it is not known whether the run fits" in first_line(made, found)
    made.sample = None
    assert first_line(made, found).startswith("fits: worker 0 needs 0.600 GB of the 1.000 GB")


@pytest.mark.parametrize(
    "command, words",
    [
        (["plan", *APART], ["system=vanilla", "label=mine", *SMALL]),
        (["run", "--dry", "cluster=null"], SMALL),  # of the default system, which is not named
    ],
)
def test_a_probe_that_fails_is_named_by_the_words_that_were_given(command, words, here, monkeypatch, capsys):
    def start(sweep, places, missing):
        raise InputError(sweep)

    monkeypatch.setattr(runner, "start", start)
    assert cli.main([*command, *words, "probe=2", *here]) == 2
    *_, last = capsys.readouterr().err.splitlines()  # before it may stand that the graph is prepared
    assert last.startswith(f"error: {' '.join(words)} ")


def test_a_gpu_does_not_hold_what_lies_in_its_hosts_memory(made):
    words = ["system=digest", *SMALL, "cluster=l4"]
    on_gpu, on_cpu = made(*words), made(*words, "device=cpu")
    assert "mapped" not in on_gpu.memory and (on_cpu.memory["mapped"] > 0).all()


@given(
    power=st.floats(0.01, 1.5),
    start=st.floats(1, 1e6),
    times=st.floats(1, 1000),
    workers=st.integers(1, 5),
    part=st.floats(0, 1),
)
def test_what_grows_is_between_its_power_of_the_scale_and_the_scale(power, start, times, workers, part):
    """The power is that of its growth so far; what grows by one between it and 1 after that is within."""
    share = np.arange(1, workers + 1) / workers
    large = share * start * 2**power
    least, most = grown(large, share * start, times)
    other = power + part * (1 - power)
    for end, exponent in ((least, min(power, 1)), (most, max(power, 1))):
        np.testing.assert_allclose(end, large * times**exponent, rtol=1e-6)
    assert (least <= large * times**other * (1 + 1e-9)).all()
    assert (large * times**other <= most * (1 + 1e-9)).all()
    # What did not grow stays, and what had been nothing grows as the scale.
    assert all((end == large).all() for end in grown(large, large, times))
    for end in grown(large, np.zeros(workers), times):
        np.testing.assert_allclose(end, times * large)


def test_a_smaller_twin_tells_of_a_larger_one(made):
    words = ["system=vanilla", "dataset=twin/flickr", "dataset.scale=0.1", "workers=3", "epochs=3", *APART]
    whole, smaller = made(*words), made(*words, "sample=0.05")
    least, most = smaller.bytes_epoch()
    assert least <= whole.bytes_epoch()["least"] <= most < 1.3 * least
    assert smaller.needs == pytest.approx(whole.needs, rel=0.1)
    assert smaller.seconds[0].epoch < smaller.seconds[1].epoch
    weights = [each.bytes_by_purpose().loc["weights"].tolist() for each in (smaller, whole)]
    assert weights[0] == weights[1]
    assert any("extrapolated" in note for note in smaller.notes) and not any(
        "extrapolated" in note for note in whole.notes
    )


def test_a_run_that_sends_nothing_has_a_row(made):
    (row,) = table_rows(found := made("system=vanilla", *SMALL, *APART, "workers=1"), None, ["workers=1"])
    assert (row["purpose"], row["bytes_least"], row["bytes_most"], row["exact"]) == ("", 0, 0, True)
    assert row["memory_bytes"] == found.needs > 0 and row["modelled_epoch_s"] > 0


def test_extrapolated_bytes_are_numbers_also_where_a_total_did_not_grow(made):
    sent = made("system=vanilla", *SMALL, *APART, "sample=0.0025").bytes
    assert sent[["least", "most"]].dtypes.tolist() == [float, float]


def test_on_slow_links_an_epoch_is_its_messages_one_after_the_other(made):
    """Each exchange lasts as long as its larger direction, and a sum of two workers as its half each way."""
    rate = 1e-6  # GB/s, beside which no work counts
    slow = [f"cluster.between.gbytes_per_s={rate}", "cluster.between.latency_us=0"]
    found = made("system=vanilla", *SMALL, *APART, *slow)
    exchanges = found.bytes[found.bytes.epoch == 1].groupby(["layer", "direction", "purpose"])
    largest = [max(each.groupby(end).most.sum().max() for end in ("worker", "peer")) for _, each in exchanges]
    want = sum(largest) / (rate * 1e9)
    assert found.seconds[0].epoch == pytest.approx(want, rel=0.01)
    piped, plain = (made(f"system={name}", *SMALL, *APART) for name in ("pipegcn", "vanilla"))
    assert piped.bytes_epoch().equals(plain.bytes_epoch()) and piped.seconds[0].epoch < plain.seconds[0].epoch


def test_what_does_not_fit_is_said_first(here, capsys, tmp_path):
    words = ["system=vanilla", *SMALL, *here, "--csv", str(tmp_path / "plan.csv")]
    small = tmp_path / "small.yaml"
    small.write_text(
        "name: small\ndevices: [{kind: a, memory_gb: 0.1}, {kind: a, memory_gb: 0.1}]\n"
        "inside: {gbytes_per_s: 1}\n"
    )
    assert main([*words, f"cluster={small}"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"does not fit: worker \d needs [\d.]+ GB of the 0.107 GB that its device has", said)
    assert "assumed, since the cluster does not say: inside.latency_us=0" in said
    # With one worker per host the second one is on the third device.
    devices = "[{kind: a, memory_gb: 64}, {kind: a, memory_gb: 64}, {kind: a, host: 1, memory_gb: 0.1}]"
    small.write_text(f"name: small\ndevices: {devices}\nbetween: {{gbytes_per_s: 1}}\n")
    assert main([*words, f"cluster={small}", "per_host=1"]) == 0
    assert capsys.readouterr().out.startswith("does not fit: worker 1 needs")
    small.write_text("name: small\ndevices: [{kind: a}, {kind: a}]\ninside: {gbytes_per_s: 1}\n")
    assert main([*words, f"cluster={small}"]) == 0
    assert "does not say what its devices have" in capsys.readouterr().out.splitlines()[0]


def test_runs_of_one_system_are_told_apart(here, capsys, tmp_path):
    table = tmp_path / "plan.csv"
    assert main(["system=vanilla", "model.hidden=16,64", *SMALL, *APART, *here, "--csv", str(table)]) == 0
    said = capsys.readouterr().out
    rows = re.findall(r"workers model.hidden=(\d+) +yes +[\d.]+ +([\d.]+)", said)
    assert sorted(width for width, _ in rows) == ["16", "64"]
    assert "2 workers model.hidden=16 on cluster=hosts/10g per_host=1\n" in said
    apart = pd.read_csv(table).groupby("asked").bytes_most.sum() / 1e6
    assert sorted(f"{each:.3f}" for each in apart) == sorted(sent for _, sent in rows)


def test_what_is_changed_of_a_cluster_stands_with_its_name(here, capsys, tmp_path):
    change = "cluster.between.gbytes_per_s=0.001"
    (row,) = {row["cluster"] for row in planned(["system=vanilla", *SMALL, *APART, change, *here], tmp_path)}
    assert row == "hosts/10g between.gbytes_per_s=0.001 per_host=1"
    assert f"on cluster={row}\n" in capsys.readouterr().out


@pytest.mark.parametrize("system, reads", [("capgnn", True), ("vanilla", False)])
def test_who_reads_another_hosts_memory_is_said(system, reads, made):
    notes = made(f"system={system}", *SMALL, *APART).notes
    assert any("another host's workers" in note for note in notes) == reads


@pytest.mark.parametrize(
    "words, said",
    [
        (["system=vanilla", *SMALL], "no cluster is given: add cluster=NAME"),
        (["system=vanilla", *SMALL, "cluster=measured"], "cluster=measured describes no devices"),
        (["system=vanilla", *SMALL, "cluster=traced"], "cluster=traced describes no devices and links: name"),
        (["system=vanilla", *SMALL, *APART, "sampel=0.1"], 'not a key of the config; did you mean "sample"?'),
        (["system=sancus", *SMALL, *APART, "features=once"], 'the config; did you mean "system.features"?'),
        (["system=vanilla", *SMALL, *APART, "--csv", "/no/such/a.csv"], "csv=/no/such/a.csv is no place"),
        (["system=vanilla", *SMALL, "cluster=hosts/1g"], 'did you mean "hosts/10g"'),
        ([*SMALL, *APART], "system is not given: add system=NAME"),
        (["system=vanila", *SMALL, *APART], 'did you mean "vanilla"'),
        (["system=vanilla", *SMALL, *APART, "probe=ten"], "probe=ten is not a whole number: give one"),
        (["system=vanilla", *SMALL, *APART, "probe=1"], "probe=1"),
        (["system=vanilla", *SMALL, *APART, "probe="], 'probe="" is not a whole number: give one'),
        (["system=vanilla", *SMALL, *APART, "probe=1:30"], "probe=1:30 is not a whole number: give one"),
        (["system=vanilla", *OWN, *APART, "sample=0.1"], "asks for a smaller twin"),
        (["system=vanilla", *SMALL, *APART, "sample=2"], "sample=2.0 is out of range: give more than 0 and"),
        (["system=vanilla", *SMALL, "cluster=my #2.yaml"], 'cluster="my #2.yaml" does not exist'),
        (
            ["system=vanilla", *SMALL, *APART, "sample=0.5"],
            "sample=0.5 is no smaller than dataset.scale=0.005",
        ),
        (
            ["system=vanilla", *SMALL, *APART, "sample=0.002", "--grids"],
            "--grids needs the graph itself, and",
        ),
        (["system=vanilla", *SMALL, *APART, "workers=17"], "workers=17 is more than cluster=hosts/10g has"),
        (["system=vanilla", *SMALL, *APART, "partition=ebv"], "give partition=metis"),
        (["system=sancus", *SMALL, *APART, "rows=needed", "progress=false"], "give rows=all"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_sentence(words, said, here, refused):
    refused(main, [*words, *here], said)


@pytest.mark.parametrize("command", PAGE, ids=lambda command: str(PAGE.index(command)))
def test_every_command_of_the_page_is_planned(command, here, tmp_path, monkeypatch, capsys):
    """On a small twin, on two workers, and without its probe, which another test is of."""
    monkeypatch.chdir(tmp_path)
    parse([word for word in command.rest if "=" in word])
    short = [word for word in command.rest if not word.startswith(("dataset", "workers", "probe", "sample"))]
    short += ["sample=0.0025"] * any(word.startswith("sample") for word in command.rest)
    assert main([*short, *SMALL, *here]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith("fits: ")
    assert not any(word == "--csv" for word in command.rest) or (tmp_path / "plan.csv").is_file()


GRAPH = {"vertices": 100, "edges": 600, "widths": [10, 6, 4]}  # mean widths of its layers: 8 and 5


@pytest.mark.parametrize(
    "name, workers, sent, memory",
    [
        # Words of each of 16 workers: (2 * 600 + 8 * 100 * 8 + 2 * 600 + 8 * 100 * 5) / 4.
        ("CAGNET 2D", 16, 16 * 3200, (600 + 100 * 20) / 16),
        # Words of each of 8 workers: (2 * 600 + 12 * 100 * 8 + 2 * 600 + 12 * 100 * 5) / 4.
        ("CAGNET 3D", 8, 8 * 4500, 600 / 8 + 100 * 20 / 4),
        # Words of 27 workers: 2 * 100 * (2 * 16 + 4 * 10 + 2 * 10 + 4 * 6). Memory of the matrix alone.
        ("Plexus", 27, 23200, 6 * 600 / 9),
    ],
)
def test_a_grid_sends_and_holds_words_of_four_bytes_by_its_formula(name, workers, sent, memory):
    (found,) = (g for g in grids(**GRAPH, workers=workers) if g.name == f"{name} (published formula)")
    assert (found.bytes, found.memory) == (4 * sent, 4 * memory)


@pytest.mark.parametrize(
    "workers,notes",
    [
        (8, ["8 workers are no square", "", "memory of the matrix alone"]),
        (16, ["", "16 workers are no cube", "16 workers are no cube"]),
        (12, ["12 workers are no square", "12 workers are no cube", "12 workers are no cube"]),
    ],
)
def test_a_row_says_where_the_workers_make_no_such_grid(workers, notes):
    found = grids(**GRAPH, workers=workers)
    assert [each.note for each in found] == notes
    assert [each.bytes is None for each in found] == [" no " in note for note in notes]


def test_one_worker_sends_nothing():
    assert [each.bytes for each in grids(**GRAPH, workers=1)] == [0, 0, 0]


def cluster(hosts: list[int], **links: float) -> Cluster:
    devices = [Device(host=host) for host in hosts]
    return Cluster("mine", devices, **{kind: Link(gbytes_per_s=rate) for kind, rate in links.items()})


@pytest.mark.parametrize(
    "hosts,links,seconds",
    [
        ([0, 0, 0, 0], {"inside": 2}, 4 / 4 / 2),
        ([0, 0, 0, 0], {"inside": 2, "bridge": 4}, 4 / 4 / 1),  # a fourth of the bridge each
        ([0, 0, 1, 1], {"inside": 2, "between": 3}, 4 / 4 / 1.5),  # two workers to a host's network
    ],
)
def test_communication_is_a_workers_bytes_over_its_share_of_the_narrowest_link(hosts, links, seconds):
    assert communication(4e9, cluster(hosts, **links), 4) == pytest.approx(seconds)


def test_a_plan_has_them_beside_the_systems_once_for_each_graph(here, tmp_path, capsys):
    small = [word for word in SMALL if not word.startswith(("workers", "epochs"))]
    words = ["system=zero_halo,local", *small, "workers=4", "epochs=1", "cluster=hosts/10g", *here, "--grids"]
    rows = [row for row in planned(words, tmp_path) if "formula" in row["system"]]
    assert [row["note"] for row in rows] == ["", *["4 workers are no cube"] * 2]
    assert float(rows[0]["bytes_least"]) > 0 and float(rows[0]["communication_s"]) > 0
    assert rows[1]["bytes_least"] == rows[1]["communication_s"] == ""
    out = capsys.readouterr().out
    assert out.count("CAGNET 2D (published formula)") == 1 and "4 workers are no cube" in out
