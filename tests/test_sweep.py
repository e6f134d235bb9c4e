"""Sweeps, and what is said while runs go on where nobody has a terminal."""

import math
import re
from types import SimpleNamespace

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hypothesis import given
from hypothesis import strategies as st

from harness import cli
from harness.base.errors import InputError
from harness.base.target import target_of
from harness.base.words import written
from harness.comm.recorder import Epoch
from harness.results import files
from harness.results.report import groups, single
from harness.run import overrides, progress, refused, runner, sweep
from harness.run.progress import APART, LINES, Progress
from tests import traces

SWEEP = ["-m", "system=vanilla,sancus,cagnet", "system.bound=1,2", "seed=1,2"]


def test_a_key_that_only_some_systems_have_is_given_to_those():
    assert overrides.check(SWEEP) is None
    assert overrides.expand(["seed=1"]) == [["seed=1"]]
    varied = [[f"seed={seed}", f"system={name}"] for seed in (0, 1) for name in ("vanilla", "sancus")]
    assert overrides.expand(["seed=0,1", "system=vanilla,sancus"]) == varied, "the last varies fastest"
    both = ["model=gcn,sage", "model.hidden=4,8"]  # all options of this group have the key
    assert len(overrides.expand([*SWEEP, *both])) == 4 * 8
    runs = runner.expand(" ".join(SWEEP[1:]))
    assert len(runs) == 8 and ["system=vanilla", "seed=1"] in runs
    assert sum("system=sancus" in run for run in runs) == 4
    assert all(
        any(word.startswith("system.bound") for word in run) == ("system=sancus" in run) for run in runs
    )


def test_of_a_key_that_is_given_again_the_last_value_counts():
    (run, _) = overrides.expand(["seed=1,2", "epochs=1", "epochs=2", "epochs=1"])
    assert runner.composer([])(run).epochs == 1


def test_a_key_on_the_command_line_beats_values_that_a_config_lists(tmp_path):
    listed = tmp_path / "hydra" / "sweeper" / "listed.yaml"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"_target_: {target_of(BasicSweeper)}\nparams: {{seed: '1,2', epochs: '3,4'}}\n")
    made = sweep.read(["-m", "--config-dir", str(tmp_path), "hydra/sweeper=listed", "seed=5"])
    assert made.runs == [["epochs=3", "seed=5"], ["epochs=4", "seed=5"]] and made.keys == ["epochs"]


def test_options_that_only_hydra_finds_are_left_to_it(tmp_path):
    (tmp_path / "config.yaml").write_text("defaults: [system: mine]\n")
    for name in ("mine", "yours"):
        (tmp_path / "system").mkdir(exist_ok=True)
        (tmp_path / "system" / f"{name}.yaml").write_text("k: 1\n")
    words = ["-m", "--config-path", str(tmp_path), "system=mine,yours", "system.k=1"]
    made = sweep.read(words)
    assert (made.runs, made.words, made.total, made.keys) == ([], words, None, ["system"])


def test_a_sweep_with_a_config_by_name_is_still_a_sweep(place, capsys):
    words = place.arguments("system=vanilla,sancus", "model.hidden=4,8", "label=${oc.env:UNSET}")
    assert cli.main(["-m", "--config-name", "config", *words]) == 2
    told = capsys.readouterr().err
    assert "run 4 of 4: system=sancus, model.hidden=8" in told and "4 of the sweep's jobs failed" in told


@pytest.mark.parametrize(
    "words, sentence",
    [
        ("system=vanilla,cagnet system.bound=1", "system.bound is a key of none of vanilla, cagnet"),
        ("system=vanilla,sancus system.bund=1", 'key of none of vanilla, sancus; did you mean "bound"?'),
        ("system=vanilla system.bound=1,2", "system.bound is not a key of system=vanilla; known: features"),
        ("system=vanilla system.messages=cover", "known: features; system=vanilla/cover has it"),
        ("system=vanilla,sancus model.hiden=1,2", "model.hiden is not a key of model=gcn; did you mean"),
    ],
    ids=["lacked", "mistyped", "alone", "preset", "elsewhere"],
)
def test_a_key_that_none_has_is_refused(words, sentence):
    with pytest.raises(InputError) as refused:
        overrides.check(["-m", *words.split()])
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_sweep_numbers_its_runs_and_ends_with_a_table(place):
    done = place.run("-m", "system=vanilla,sancus", "system.bound=1,2", "epochs=1", "progress=auto")
    assert done.code == 0, done.err
    assert len(place.runs()) == 3
    assert re.findall(r"^run .*$", done.err, re.M) == [
        "run 1 of 3: system=vanilla",
        "run 2 of 3: system=sancus, bound=1",
        "run 3 of 3: system=sancus, bound=2",
    ]
    beside = re.findall(r"beside exact .* of its bytes, .*; vanilla, 1 seed", done.out)
    assert len(beside) == 2, "of each run of SANCUS, and of no other"
    assert len(re.findall(r" x2: epoch 1/1, loss \d\.\d+, val acc \d", done.err)) == 3
    heading, _, *rows = done.out[done.out.rindex("system ") :].splitlines()
    assert re.match(r"system +bound +test acc % +minus exact +epoch ", heading)
    assert [row.split()[:2] for row in rows[1:3]] == [["sancus", "1"], ["sancus", "2"]]
    assert rows[0].split()[0] == "vanilla" and len(rows[0].split()) == len(rows[1].split()) - 2  # no bound


def test_a_sweep_on_a_file_that_is_not_there_says_so_once_before_it_starts(place, refused):
    (place.folder / "graph.csv").write_text("a,b\n1,2\n")
    for name, why in (
        ("garph.npz", 'garph.npz" is not a file; did you mean "graph.npz"?'),
        ("graph.csv", "halobench import"),
    ):
        words = place.arguments("seed=1,2,3", f"dataset.path={place.folder / name}")
        refused(cli.main, ["-m", *words], why)
    assert not place.results.exists()


@pytest.mark.parametrize(
    "words, why",
    [
        ("dataset=twin/reddit dataset.scale=0.005", "dataset.scale=0.005 leaves twin/reddit 1165 vertices"),
        ("dataset=twin/reddit dataset.name=redit", 'dataset.name="redit" is not known; did you mean'),
        ("dataset=debian", "is missing from data_dir="),
    ],
    ids=["scale", "twin", "raw"],
)
def test_a_graph_that_cannot_be_had_is_told_of_once_before_a_sweep_starts(words, why, tmp_path, capsys):
    places = [f"{key}={tmp_path / key}" for key in ("results", "cache", "data_dir")]
    assert cli.main(["-m", *words.split(), "seed=1,2,3", *places]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and why in told and told.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_a_reason_is_told_once_however_many_runs_fail_for_it(place, capsys):
    words = place.arguments("system=vanilla,zero_halo", "seed=1,2", "workers=61")
    assert cli.main(["-m", *words]) == 2
    told = capsys.readouterr().err
    assert told.count("workers=61 is more workers than graph has vertices (60); give 60 or fewer\n") == 2
    assert told.count("error: the same as in run 1\n") == told.count(": the same\n") == 3


def test_results_that_cannot_be_written_are_named_once(place, capsys):
    (place.folder / "file").touch()
    words = place.arguments("system=vanilla,zero_halo", f"results={place.folder / 'file'}")
    assert cli.main(["-m", *words]) == 2
    told = capsys.readouterr().err
    assert (
        f'error: results="{place.folder / "file"}" cannot be written (Not a directory); give results=' in told
    )
    assert told.count("error: the same as in run 1\n") == 1


def test_runs_that_failed_for_one_reason_stand_together(place, capsys):
    words = place.arguments("workers=61,62", "seed=1,2")
    assert cli.main(["-m", *words]) == 2
    told = capsys.readouterr().err
    listed = told[told.index("4 of the sweep's jobs failed") :].splitlines()[1:]
    assert [line.endswith(": the same") for line in listed] == [False, True, False, True]


def test_a_value_that_cannot_be_is_refused_before_the_first_run_of_a_sweep(place):
    done = place.run("-m", "system=sancus", "system.bound=1,x", "epochs=1")
    assert (done.code, place.runs()) == (2, [])
    assert done.err.startswith("error: system.bound=x is not a number: give one"), done.err


def test_the_table_after_a_sweep_has_what_the_tables_have(tmp_path):
    runs = []
    for bound, target in ((2, 0.5), (1, 0.7)):
        for seed in (1, 2):
            path = tmp_path / f"{bound}{seed}"
            traces.finished(path, traces.config(seed=seed, system__bound=bound), target=target)
            runs.append(({"system.bound": str(bound), "seed": str(seed)}, path))
    table, said = single.swept_table(["system.bound", "seed"], runs)
    assert not said
    cells = {column.header: list(column.cells) for column in table.columns}
    assert cells["bound"] == ["2", "1"] and cells["seeds"] == ["2", "2"]
    found, _ = groups.load([tmp_path])
    by_bound = {str(g.first.keys["system.bound"]): g for g in found}
    for bound, mb in zip(cells["bound"], cells["MB per epoch"]):
        sent = by_bound[bound].estimate(lambda s: sum(s["bytes_epoch"].values()) / 1e6)
        assert mb == format(sent, ".3f")
    assert cells["test acc %"][0] < cells["test acc %"][1]


def test_beside_a_sweep_stands_exact_training_that_it_does_not_have(tmp_path):
    runs = []
    for seed in (1, 2):
        for name, target, role in (("exact", 0.8, "reference"), ("plain", 0.7, "")):
            path = tmp_path / "cora" / f"{name}-2w-seed{seed}-{seed:08x}"
            traces.of(path, name, seed=seed, target=target, ran_on={"role": role})
        runs.append(({"seed": str(seed)}, path))
    table, _ = single.swept_table(["seed"], runs)
    (cell,) = next(column for column in table.columns if column.header == "minus exact").cells
    plain, exact = (
        files.read_json(folder / "summary.json")["best"]["test"]
        for folder in sorted(path.parent.glob("*seed1*"))[::-1]
    )
    assert cell == f"{100 * (plain - exact):.2f}"


def test_how_long_runs_take_is_not_known_by_a_damaged_one(tmp_path):
    (run,) = runner.composed([["dataset=cora", "epochs=3", f"results={tmp_path}"]])
    traces.finished(run.directory, run.composed)
    (other,) = runner.composed([["dataset=cora", "epochs=3", f"results={tmp_path}", "seed=2"]])
    assert runner.seconds_of(other) is not None
    told = files.read_json(run.directory / "summary.json")
    files.write_json_atomic(run.directory / "summary.json", told | {"train_total_s": None})
    assert runner.seconds_of(other) is None
    (run.directory / "summary.json").write_text("{")
    assert runner.seconds_of(other) is None
    assert "1 run; how long they take is known when" in runner.how_long([other])


def test_of_runs_some_of_which_none_was_like_so_many_are_timed(tmp_path):
    made = runner.composed(
        [["dataset=cora", "epochs=3", f"results={tmp_path}", f"seed={seed}"] for seed in (1, 2)]
        + [["dataset=cora", "epochs=3", f"results={tmp_path}", f"system={name}"] for name in ("gas", "bns")]
    )
    traces.finished(made[0].directory, made[0].composed)
    assert re.fullmatch(
        r"4 runs, 1 of them finished before; 1 of the others takes about \d+ s by the latest finished runs of"
        r" the same system, graph and workers; how long the other 2 take is not known, since no run like them"
        r" has finished",
        runner.how_long(made),
    )
    assert "; 1 of them takes about" in runner.how_long(made[1:])
    assert re.search(r"^1 run; it takes about \d+ s by", runner.how_long(made[1:2]))


def test_folders_may_have_any_name(tmp_path, monkeypatch):
    folder = tmp_path / "a,b (c) \\'d"
    (folder / "system").mkdir(parents=True)
    (folder / "system" / "mine.yaml").write_text("_target_: systems.vanilla.Vanilla\nfeatures: refetch\n")
    monkeypatch.setenv("HALOBENCH_CONFIG_DIR", str(folder))
    (run,) = runner.composed([["system=mine"]], runner.Places(folder, folder / "cache", folder / "data"))
    assert run.system.features == "refetch"
    assert (run.settings.results, run.settings.cache) == (str(folder), str(folder / "cache"))


@given(text=st.text("ab1.-/\\'\"$[]{}(),:= ~"))
def test_a_text_that_is_written_as_an_override_is_read_again(text):
    assert refused.parsed(f"label={written(text)}").value() == text


@given(epochs=st.integers(1, 500), every=st.integers(0, 60), seconds=st.sampled_from([0, APART / 7, APART]))
def test_lines_fall_on_evaluations_and_are_few(epochs, every, seconds):
    settings = SimpleNamespace(progress="auto", workers=2, epochs=epochs)
    run = SimpleNamespace(
        settings=settings, system_name="s", graph_name="g", evaluate=SimpleNamespace(every=every)
    )
    shown, said = Progress(run, enabled=True), []
    with shown, pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "say", lambda run, text: said.append(text))
        for number in range(epochs):
            patch.setattr(progress.time, "monotonic", lambda now=1.0 + number * seconds: now)
            shown.epoch(Epoch(number), 0.5, None)
    at = [int(re.match(r"epoch (\d+)/", line)[1]) for line in said]
    assert at[-1] == epochs and 1 <= len(at) <= LINES + 1
    assert all((number - 1) % max(1, every) == 0 for number in at[:-1])
    # Not so few that a long run is silent, nor so many that a short one is not.
    if seconds == APART:
        assert len(at) >= min(math.ceil(epochs / max(1, every)), LINES // 2)
    assert all((later - earlier) * seconds >= APART for earlier, later in zip(at, at[1:-1]))
