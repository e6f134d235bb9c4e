"""Every command on README and the pages of docs/ is tried, by this file or by the test that TRIED names.

Here runs are shortened (two epochs of a small graph, two values of a sweep), and reports read the runs of a
folder that is as the page supposes. The nightly tests take the page's own graph, workers and sweeps.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness import cli
from harness.claims.experiment import FOLDER
from harness.fidelity import __main__ as fidelity
from harness.fidelity import cuts
from harness.figures import __main__ as figures
from harness.figures.figure import available
from harness.graph import real
from harness.run import overrides, runner
from harness.run.runner import Places
from harness.study import __main__ as study
from tests.commands import ROOT, Command, commands, mentioned
from tests.graphs import edge_list, random_graph
from tests.launching import Started
from tests.short import TINY, shorten_figures

ALL = commands()
# What begins with these words is tried elsewhere: by the test named, because the page has more to show than
# that the command ends, or needs what is made there.
TRIED = {
    "python -m harness --config-dir my_ideas/conf -m system=vanilla,refresh": "test_tutorial.py::ran",
    "python -m harness.report table mine": "test_tutorial.py::ran",
    "halobench check system=refresh": "test_tutorial.py::test_the_pages_system_holds_every_check",
    "PYTHONPATH=my_ideas python -m harness --config-dir my_ideas/conf dataset=ring": (
        "test_outside.py::test_a_dataset_is_one_file_and_one_yaml"
    ),
    "PYTHONPATH=my_ideas python -m harness --config-dir my_ideas/conf partition=stripes": (
        "test_outside.py::test_a_partitioner_is_one_file_and_one_yaml"
    ),
    "python -m harness --config-dir my_ideas/conf model=mixed": (
        "test_plugins.py::test_a_model_and_a_score_are_trained_traced_and_shown"
    ),
    "halobench cluster measure": "test_calibrate.py::test_the_command_writes_a_cluster",
    "halobench replay results/cora cluster=local.yaml": (
        "test_calibrate.py::test_a_run_is_replayed_on_the_machine_as_measured"
    ),
    "halobench figures --from my_figures": "test_figures.py::test_the_figure_of_the_page",
    "torchrun --nproc-per-node 2 -m harness.worker": (
        "test_torchrun.py::test_what_prepare_prints_trains_as_the_local_launcher_does"
    ),
    "torchrun --nnodes 2": "test_hosts.py::",
    "srun bash -c": "test_gpu_page.py::test_the_script_for_slurm_trains_with_a_task_per_worker",
    "python -m harness -m hydra/launcher=joblib": (
        "test_launchers.py::test_jobs_in_other_processes_are_the_same_runs"
    ),
    "python -m harness -m hydra/launcher=submitit_slurm": (
        "test_gpu_page.py::test_what_submitit_submits_is_a_job_with_the_pages_gpus"
    ),
    "docker": "test_gpu_page.py::test_every_line_of_the_dockerfile_is_one_of_the_readmes_commands",
    ".venv/bin/pre-commit install": "test_habits.py::",
}
# Names of subcommands of which a test below takes every command.
HERE = {
    *("run", "report", "plot", "report html", "report claims", "report history", "replay", "runs", "import"),
    *("figures", "study", "fidelity", "harness.fidelity.cuts", "bench", "git", "make", "pip"),
}


def tried(command: Command) -> str | None:
    return next((test for begins, test in TRIED.items() if command.line.startswith(begins)), None)


def of(*names: str, nightly: tuple[str, ...] = ()) -> list:
    """The commands of these names that are tried here, each line once, named by page and number; on the
    pages that begin with `nightly` by the nightly target alone: others in the suite take the same way.
    """
    found, numbers = {}, itertools.count(1)
    for command in ALL:
        if command.name in names and not tried(command):
            marks = pytest.mark.nightly(20) if nightly and command.page.startswith(nightly) else ()
            case = pytest.param(command, id=f"{command.page}-{next(numbers)}", marks=marks)
            found.setdefault(command.line, case)
    return list(found.values())


def test_no_command_is_tried_by_nobody():
    assert len(ALL) >= 120 and {command.page for command in ALL} >= {"README.md", "docs/howto/sweep.md"}
    assert [command for command in ALL if not tried(command) and command.name not in HERE] == []
    for begins, test in TRIED.items():
        assert [command for command in ALL if command.line.startswith(begins)], f"no page says {begins}"
        file, _, name = test.partition("::")
        assert f"def {name or 'test'}" in (ROOT / "tests" / file).read_text(), test


# Runs


def shortened(words: list[str]) -> list[str]:
    """The same command on the test's graph: two workers at most, two epochs, of the first key that is swept
    the first and last value, of the others the last.
    """
    short = []
    for word in words:
        key, equals, value = word.partition("=")
        if key in ("dataset", "data_dir", "results", "device", "evaluate.every") or key.startswith(
            "dataset."
        ):
            continue
        values = value.split(",")
        if key in ("workers", "gpus"):
            values = sorted({str(min(2, int(each))) for each in values})
        if key == "straggler.delay":
            values = ["0.001"]
        if key == "hydra.sweeper.n_trials":
            values = ["2"]
        if len(values) > 1:
            values = [values[0], values[-1]] if key != "seed" and "," not in "".join(short) else values[-1:]
        if key != "epochs":
            short.append(f"{key}{equals}{','.join(values)}")
    return [*short, "epochs=2"]


def covering(runs: list[list[str]]) -> list[list[str]]:
    """Of a sweep's runs so many that each value is in one."""
    seen, found = set(), []
    for run in runs:
        if set(run) - seen:
            found.append(run)
            seen |= set(run)
    return found


@pytest.mark.parametrize("command", of("run"))
def test_a_run_of_a_page_is_composed(command, tmp_path):
    """As the page has it, each value of its sweep at least once: keys, values and the folder."""
    words = command.rest
    asked = [word for word in words if word != "-m"]
    assert overrides.check(words, runner.CONF) == ("-m" in words)
    places = Places(tmp_path, tmp_path, tmp_path)
    sweep = shlex.join(word for word in asked if not word.startswith(("results=", "data_dir=", "hydra")))
    assert runner.composed(covering(runner.expand(sweep)), places)


@pytest.mark.parametrize(
    "command", of("run", nightly=("docs/results", "docs/findings", "docs/systems", "docs/howto/history"))
)
def test_a_run_of_a_page_trains(command, place):
    if "hydra/sweeper=optuna" in command.line:
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    done = place.run(*shortened(command.rest))
    assert done.code == 0, done.err
    summaries = list(place.results.glob("*/*/summary.json"))
    assert bool(summaries) != ("launch=prepare" in command.line)


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", of("run"))
def test_a_run_of_a_page_trains_on_its_own_graph(command, place, real_data, tmp_path):
    """All workers and all values of each sweep, but two seeds and two epochs at most."""
    if "hydra/" in command.line:
        pytest.skip("another launcher or sweeper; the same runs stand on the page without it")
    if "my_graph.npz" in command.line:
        pytest.skip("the reader's own graph")
    words = [
        word for word in command.rest if not word.startswith(("data_dir=", "results=", "device=", "epochs="))
    ]
    words = [",".join(word.split(",")[:2]) if word.startswith("seed=") else word for word in words]
    names = [name for word in words if word.startswith("dataset=") for name in word[8:].split(",")]
    missing = [name for name in names if name in real.DATASETS and not real.present(name, real_data)]
    if missing:
        pytest.skip(f"{missing[0]} is not in the folder of real graphs")
    own = [f"results={tmp_path / 'results'}", f"cache={place.folder / 'cache'}", f"data_dir={real_data}"]
    done = Started(place, [*words, *own, "epochs=2", "progress=false"]).end()
    assert done.code == 0, done.err


# Reports


@pytest.fixture(scope="module")
def folder(launcher, tmp_path_factory):
    """A reader's folder: results/ with runs of two systems on "cora", of a sweep over a knob on "pubmed", of
    one over the model's width on "dblp"; tables of a graph of one's own.
    """
    here = tmp_path_factory.mktemp("reader")
    graph = random_graph(60, 6, seed=3)
    pairs = np.stack(edge_list(graph))
    splits = {name: getattr(graph, name) for name in ("train", "val", "test")}
    for name in ("cora", "pubmed", "dblp"):
        np.savez(here / f"{name}.npz", edges=pairs, features=graph.features, labels=graph.labels, **splits)
    pd.DataFrame(pairs.T, columns=["source", "target"]).to_csv(here / "edges.csv", index=False)
    for name, values in {"features": graph.features, "labels": graph.labels[:, None]}.items():
        table = pd.DataFrame(values, columns=[f"{name[0]}{j}" for j in range(values.shape[1])])
        table.insert(0, "id", range(len(table)))
        table.to_csv(here / f"{name}.csv", index=False)
    fixed = [f"results={here / 'results'}", f"cache={here / 'cache'}", "progress=false", "threads=1"]
    fixed += ["dataset=npz", "epochs=13", "kernel=numba"]
    for name, sweep in (
        ("cora", "-m system=vanilla,sancus model.hidden=4 workers=4 seed=1,2"),
        ("cora", "system=vanilla model.hidden=4 workers=4 seed=3 keep_checkpoint=true"),
        ("pubmed", "-m system=sancus system.bound=1,2 model.hidden=4 workers=2"),
        ("dblp", "-m system=vanilla,sancus model.hidden=4,8 workers=4"),
    ):
        done = Started(launcher, [*sweep.split(), f"dataset.path={here / name}.npz", *fixed]).end()
        assert done.code == 0, done.err
    return here


@pytest.fixture
def reader(folder, tmp_path, monkeypatch):
    """A copy of that folder, in which the test is."""
    shutil.copytree(folder, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    return tmp_path / "reader"


def filled_in(words: list[str]) -> list[str]:
    """The words, with runs that are there in place of those that a page makes up."""
    runs = {path.parent: yaml.safe_load(path.read_text()) for path in Path("results").glob("*/*/config.yaml")}
    sancus, vanilla = (
        next(str(run) for run, config in sorted(runs.items()) if run.match(f"cora/{name}-4w-seed1-*"))
        for name in ("sancus", "vanilla")
    )
    kept = next(str(path.parents[1]) for path in Path("results").glob("*/*/checkpoints/latest"))
    places = {
        "RUN_A": sancus,
        "RUN_B": vanilla,
        "RUN": kept,
        "results/cora/vanilla-4w-seed1-1a2b3c4d": vanilla,
    }
    if "model.hidden" in words:
        widths = {
            run: config["model"]["hidden"] for run, config in runs.items() if run.match("dblp/vanilla*")
        }
        places["RUN_A"], places["RUN_B"] = (
            next(str(run) for run, width in widths.items() if width == each) for each in (4, 8)
        )
    return [places.get(word, word) for word in words]


def written(words: list[str]) -> list[Path]:
    """The files and folders that a command says it writes."""
    options = ("--out", "--csv", "--json")
    return [Path(after) for word, after in itertools.pairwise(words) if word in options]


REPORTS = [
    *of("report", "plot", "report claims", "report history", "replay", "runs"),
    *of("report html", nightly=("docs/howto/page",)),
]


@pytest.mark.parametrize("command", REPORTS)
def test_a_report_of_a_page_is_written(command, reader, launcher, capsys):
    for extra in ("tensorboard", "mlflow"):
        if extra in command.rest:
            pytest.importorskip(extra)
    words = filled_in([*command.name.split(), *command.rest])
    if command.name == "report history":
        for name in ("results-before", "results-now"):
            shutil.copytree("results", name)
        for folder in ("results", "results-now"):  # the second run of each is another revision's
            for file in Path(folder).glob("cora/*seed2*/resolved.json"):
                file.write_text(re.sub(r'"code": "\w+"', '"code": "0123456789ab"', file.read_text()))
    if "--figures" in words:
        Path("results/figures").mkdir()
        for suffix in ("png", "csv"):
            shutil.copy(ROOT / "docs" / "figures" / f"capgnn_table8.{suffix}", "results/figures")
    if "extend" in words:  # it starts workers, for which the launcher is there
        words = [str(Path(word).resolve()) if "/" in word else word for word in words]
        done = Started(launcher, [word.replace("400", "15") for word in words]).end()
        code, said, wrong = done.code, done.out, done.err
    else:
        code, (said, wrong) = cli.main(words), capsys.readouterr()
    assert code == 0 and said.strip(), wrong
    for path in written(words):
        assert path.is_file() or any(path.iterdir()), path


# Other commands


@pytest.mark.parametrize("command", of("import"))
def test_an_import_of_a_page_makes_a_graph(command, reader, capsys):
    words = [*command.name.split(), *command.rest]
    if "--labels" not in words:  # a column of the vertices' table has them
        features, labels = pd.read_csv("features.csv"), pd.read_csv("labels.csv")
        features.assign(label=labels["l0"]).to_csv("features.csv", index=False)
    assert cli.main(words) == 0, capsys.readouterr().err
    made = np.load("my_graph.npz")
    assert len(made["features"]) == len(made["labels"]) == 60


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def test_what_pages_make_is_a_target_with_its_variables():
    makefile = (ROOT / "Makefile").read_text()
    named = [command.rest for command in ALL if command.name == "make"]
    named += [text.split()[1:] for _, text in mentioned() if text.startswith("make ")]
    for target, *variables in named:
        assert target in targets(), f"make {target}"
        for variable in variables:
            assert (
                f"$({variable.split('=')[0]})" in makefile or f"$(or $({variable.split('=')[0]})" in makefile
            )


@pytest.mark.parametrize("command", of("pip"))
def test_what_pages_install_is_an_extra(command):
    extra = re.fullmatch(r"halobench\[(\w+)\]", command.rest[-1])
    assert (
        extra
        and extra[1]
        in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    )


def test_commands_in_running_text_have_the_options_that_they_name(capsys):
    helps: dict[str, str] = {}
    for page, text in mentioned():
        if not re.match(r"halobench [a-z]+(?![a-z|])", text) or text.startswith("halobench run"):
            continue
        two = " ".join(text.split()[1:3])
        name = two if two in cli.COMMANDS else text.split()[1]
        assert name in cli.COMMANDS, f"{page}: {text}"
        if name not in helps:
            with pytest.raises(SystemExit) if name != "prepare" else pytest.raises(BaseException):
                cli.main([*name.split(), "--help"])
            helps[name] = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", text):
            assert option == "--help" or option in helps[name], f"{page}: {text}"


def test_a_pages_figures_are_there():
    known = {size: available(FOLDER, size) for size in (None, "small")}
    for each in of("figures"):
        words = each.values[0].rest
        names = list(itertools.takewhile(lambda word: not word.startswith("--"), words))
        size = "small" if "small" in words else None
        assert figures.wanted(names, known[size], FOLDER, size), each.values[0].line


def test_a_pages_list_of_figures_is_printed(capsys):
    assert figures.main(["--list"]) == 0
    assert "sancus_broadcasts" in capsys.readouterr().out


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", [each for each in of("figures") if "--list" not in each.values[0].rest])
def test_figures_of_a_page_are_drawn(command, place, monkeypatch, tmp_path, capsys):
    """On a small graph, with runs of twelve epochs."""
    shorten_figures(monkeypatch, place)
    own = ["--graph", TINY, "--out", str(tmp_path), "--results", str(tmp_path / "results")]
    cache = ["--cache", str(place.folder / "cache")]
    assert figures.main([*command.rest, *own, *cache]) == 0, capsys.readouterr().err
    assert list(tmp_path.glob("*.png"))


def test_what_pages_ask_of_the_study_is_known(tmp_path, capsys):
    """Graphs, rows and kinds: without any run, that nothing has finished is all that is wrong."""
    for each in of("study"):
        command = each.values[0]
        own = ["--data-dir", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]
        assert study.main([*command.rest, *own, "--only-there"]) == 2
        assert "no run has finished" in capsys.readouterr().err, command.line


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", of("study"))
def test_the_study_of_a_page_is_written(command, place, monkeypatch, tmp_path, capsys):
    """Its rows, kinds and partitions: one seed and two epochs on a small graph in place of each."""

    def start(sweep, there):
        ended = Started(place, ["-m", *sweep.split(), *there.overrides]).end()
        assert ended.code == 0, ended.err

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(
        study, "GRAPHS", {name: replace(each, graph=TINY) for name, each in study.GRAPHS.items()}
    )
    own = ["--seeds", "1", "--epochs", "2", "--out", "page.md", "--results", "results", "--cache", "cache"]
    monkeypatch.chdir(tmp_path)
    assert study.main([*command.rest, *own]) == 0, capsys.readouterr().err
    assert "Not made when" not in Path("page.md").read_text()


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", of("fidelity", "harness.fidelity.cuts"))
def test_a_table_of_twins_is_printed(command, monkeypatch, tmp_path, capsys):
    """At a scale at which the largest graph takes seconds."""
    words = [word for word in command.rest if word not in ("--scale", "1", "0.01")]
    monkeypatch.chdir(tmp_path)
    main = fidelity.main if command.name == "fidelity" else cuts.main
    assert main([*words, "--scale", "0.002"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert json.loads(said) if "--json" in words else "twin" in said


@pytest.mark.nightly(600)
def test_the_bench_of_the_page_compares_two_checkouts(tmp_path):
    """docs/howto/bench.md from its first line to its last, in a clone; rounds and parts at their smallest."""
    environment = {**os.environ, "PYTHONPATH": "."}
    git = ["git", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    lines = [command for command in ALL if command.page == "docs/howto/bench.md"]
    assert [command.name for command in lines] == ["git", "bench", "bench", "git", "bench", "bench", "bench"]
    for command in lines:
        words = ["HEAD~1" if word == "REVISION" else word for word in command.rest]
        if command.name == "git":
            words = [*git, *words]
        else:
            words = [sys.executable, "-m", "harness", "bench", *words]
            if "compare" in words:
                words[words.index("--margin") + 1] = "100"
            elif "--rounds" in words:
                words[words.index("--rounds") + 1] = "1"
            else:
                words += ["--rounds", "1"] + (["--quick"] if "--only" in words else ["dataset.scale=0.01"])
        done = subprocess.run(words, cwd=tmp_path / "clone", env=environment, capture_output=True, text=True)
        # 3: the machine was too busy to judge
        assert done.returncode in ((0,) if command.name == "git" else (0, 1, 3)), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert {"before.json", "after.json"} <= {path.name for path in (tmp_path / "clone").iterdir()}
