"""`halobench`: subcommands, their help, the version, and options anywhere on the line."""

import re
import sys
import tomllib

import pytest

import harness
from harness import cli
from harness.results.reader import Trace
from harness.run import overrides
from tests import traces
from tests.launching import ROOT


@pytest.mark.parametrize("number, name", list(enumerate(cli.COMMANDS)))
def test_every_command_explains_itself_by_the_name_that_was_typed(number, name, monkeypatch, capsys):
    typed = ("halobench", "python -m harness")[number % 2]
    entry = "/bin/halobench" if typed == "halobench" else str(ROOT / "harness" / "__main__.py")
    monkeypatch.setattr(sys, "argv", [entry, *name.split(), "--help"])
    code = 0
    try:
        code = cli.main()
    except SystemExit as end:
        code = end.code
    shown, wrong = capsys.readouterr()
    assert code in (0, None) and not wrong
    # The words that a command takes: options, or keys.
    assert "--" in shown or "epochs" in shown
    assert re.match(rf"usage: {typed} {name}\b", shown), shown[:100]
    other = "python -m harness" if typed == "halobench" else "halobench"
    assert other not in shown.partition("\n\n")[0]


def test_a_word_that_is_no_command_is_one_sentence(capsys):
    assert cli.main(["reprot"]) == 2
    assert capsys.readouterr().err == 'error: "reprot" is not a command; did you mean "report"?\n'


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_names_a_misspelt_option(name, capsys):
    assert cli.main([*name.split(), "--hlep"]) == 2
    assert capsys.readouterr().err == 'error: --hlep is not an option; did you mean "--help"?\n'


def test_what_argparse_refuses_is_one_sentence(refused):
    for words, says in (
        ("submit results --out b", "--by must be given; "),
        ("submit chek b", '"submit chek" is not a command; did you mean "submit check"?'),
        ("runs extend nowhere", "KEY=VALUE must be given; "),
        ("runs list system=topk", "system=topk does not exist, and keys choose no runs; "),
        ("report perfetto run --out=", "argument --out: an empty text is no path; "),
        ("bench --only nothing", '--only "nothing" is not known; '),
        ("report compare", "A, B must be given; "),
        ("runs lst r", '"lst" is not a command; did you mean "list"? halobench runs --help says more\n'),
        ("report", "one of table, plot, perfetto, compare must be given; "),
        ("import", "one of edges, pyg must be given; "),
        ("system sancus", '"system" is not a command: a key is given as system=VALUE\n'),
        ("epochs = 10", '"epochs" is not a command: a key is given as epochs=VALUE\n'),
        ("gpus 4", '"gpus" is not a command: a key is given as gpus=VALUE\n'),
        ("runs", "one of list, show, compare, remove, extend, clean-cache must be given; "),
        ("cluster mesure", '"cluster mesure" is not a command; did you mean "cluster measure"?'),
        ("cluster", '"cluster" is not a command; known: cluster fit, cluster measure'),
        ("cluster --help", '"cluster" is not a command; known: cluster fit, cluster measure'),
        ("runs extend nowhere --epochs 40", "--epochs is not an option: a key is given as epochs=VALUE\n"),
        ("runs extend nowhere --epochs=40", "--epochs=40 is not an option: a key is given as epochs=40\n"),
    ):
        refused(cli.main, words.split(), f"error: {says}")


def test_the_version_is_the_projects_own_and_python_m_harness_is_the_same_command(place, capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "harness.__version__"}
    done = place.truly("-m", "harness", "--version")
    assert (done.returncode, done.stdout) == (0, f"halobench {harness.__version__}\n")
    assert cli.main(["run", "--version"]) == 0 and capsys.readouterr().out == done.stdout


def test_report_alone_is_the_table(tmp_path, capsys):
    run = traces.finished(tmp_path / "run")
    assert cli.main(["report", str(run)]) == 0
    without = capsys.readouterr().out
    assert cli.main(["report", "table", str(run)]) == 0
    assert capsys.readouterr().out == without and "plain" in without


def test_prepare_makes_the_run_folder_and_no_epoch_and_warns_of_what_has_no_effect(place):
    done = place.run("prepare", "seed=3", "system=pscgcn", "system.cache=0.5")
    assert done.code == 0 and done.err.count("\n") == 1
    assert done.err.startswith("warning: system.cache=0.5 has no effect: ")
    (run_dir,) = place.runs()
    assert f"-m harness.run.worker {run_dir}" in done.out and Trace(run_dir).epochs.empty


def test_the_option_for_a_sweep_stands_anywhere():
    plain = ["system=vanilla,sancus", "seed=1,2"]
    for at in range(3):
        given = overrides.parse([*plain[:at], "-m", *plain[at:]])
        assert given.multirun and given.overrides == plain


@pytest.mark.parametrize("option", [["--config-dir", "{}"], ["--config-dir={}"]])
def test_the_folder_of_configs_may_stand_before_the_command(option, tmp_path, capsys):
    words = [word.format(tmp_path) for word in option]
    assert cli.main([*words, "report", "tabel"]) == cli.main(["report", "tabel", *words]) == 2
    said = 'error: tabel is neither a run nor a report; did you mean "table"?\n'
    assert capsys.readouterr().err == said * 2
