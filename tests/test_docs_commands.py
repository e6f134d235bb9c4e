"""The pages are laid out to be read, and the site shows every one. Every command on README, CONTRIBUTING and
the pages of docs/ is tried: runs and reports by the files beside this one, others here, and some by the test
that `tests.commands.TRIED` names.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from harness import cli
from harness.dev import fidelity
from harness.papers.figures import __main__ as figures
from harness.papers.study import __main__ as study
from tests.commands import PAGES, ROOT, TRIED, blocks, commands, mentioned, of, tried


def test_lines_of_every_page_fit_beside_another_window():
    whole = ("|", "![")  # rows of tables and pictures, which cannot wrap
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    assert [line for line in lines if len(line) > 110 and not line.startswith(whole)] == []


def test_a_heading_stands_apart():
    """An empty line is before each, without which a reader of the source runs past it."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")):
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
        assert re.findall(r"^(?!#)(\S.*)\n#{1,4} (.+)$", prose, re.M) == [], page


def test_the_site_shows_every_page():
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())

    def shown(entry) -> set[str]:
        if isinstance(entry, dict):
            return set().union(*map(shown, entry.values()))
        return set().union(*map(shown, entry)) if isinstance(entry, list) else {entry}

    docs = ROOT / "docs"
    assert shown(settings["nav"]) == {str(path.relative_to(docs)) for path in docs.glob("**/*.md")}


ALL = commands()
# The files that take every command of these subcommands and programs.
HERE = {
    "test_docs_runs.py": ("run",),
    "test_docs_reports.py": (*("report", "report html", "report claims", "replay", "runs", "import"),),
    "test_docs_commands.py": (*("figures", "study", "fidelity", "bench", "git", "make"),),
}


# Targets that `.ci/run` makes itself, and those whose commands are only printed: the suite run twice, another
# interpreter, a GPU, or minutes of what other tests take shortened.
BY_CI = {"env", "simgrid", "test", "lint", "site", "wheel", "nightly"}
PRINTED = {"coverage", "test-python", "bench", "gpu", "fidelity", "size"}
MADE = {"demo": (), "help": (), "torture": ("SECONDS=20", "SEED=3"), "figures": ("FIG=capgnn_rapa",)}


def test_no_command_is_tried_by_nobody():
    assert len(ALL) >= 120 and {command.page for command in ALL} >= {"README.md", "docs/howto/sweep.md"}
    here = {name for names in HERE.values() for name in names}
    assert [command for command in ALL if not tried(command) and command.name not in here] == []
    for file, names in HERE.items():
        text, listed_here = (ROOT / "tests" / file).read_text(), file == Path(__file__).name
        assert all(text.count(f'"{name}"') > listed_here for name in names)
    for begins, test in TRIED.items():
        assert [command for command in ALL if command.line.startswith(begins)], f"no page says {begins}"
        file, _, name = test.partition("::")
        assert f"def {name or 'test'}" in (ROOT / "tests" / file).read_text(), test


def test_no_command_has_run_into_the_one_before():
    """As where their block was filled like a paragraph: what stands behind would be tried by nobody."""
    joined = re.compile(r"(?:^|\s)[a-z_.]+=\S+ halobench ")
    assert [
        (page.name, line) for page in PAGES for line in blocks(page.read_text()) if joined.search(line)
    ] == []


def made(target: str, *words: str, cwd: Path, environment: dict | None = None) -> str:
    """What `make` prints; with the environment that is here, which stays as it is."""
    # Below `make test` this make would print the directories that it enters.
    command = ["make", "--no-print-directory", "-o", f"{sys.prefix}/installed", target, *words]
    command += [f"VENV={sys.prefix}"]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_each_target_of_the_pages_is_made_by_somebody():
    named = {command.rest[0] for command in ALL if command.name == "make"}
    named |= {text.split()[1] for _, text in mentioned() if text.startswith("make ")}
    assert named <= BY_CI | PRINTED | {*MADE, "archive"}
    script = (ROOT / ".ci" / "run").read_text()
    assert all(re.search(rf"^make .*\b{target}\b", script, re.M) for target in BY_CI - {"env"})
    for target in PRINTED:
        assert "python" in made(target, "-n", cwd=ROOT)


@pytest.mark.nightly(300)
@pytest.mark.parametrize("target", MADE)
def test_make_does_what_pages_say(target, tmp_path, real_data):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    said = made(target, *MADE[target], f"DATA={real_data}", cwd=clone, environment=environment)
    assert said.strip()
    if target == "demo":
        assert list((clone / "results" / "demo" / "figures").glob("*.png"))


def test_an_archive_has_what_is_committed_and_the_same_bytes_each_time(tmp_path):
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    first, again = (made("archive", cwd=tmp_path / "clone") for _ in range(2))
    assert first == again
    with tarfile.open(tmp_path / "clone" / first.split()[1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "docs/artefact.md", "results/reference"} <= held
    assert not [name for name in held if name.startswith("results/cache") or name.endswith(".npz")]


@pytest.mark.nightly(400)
def test_readme_runs_as_printed(tmp_path):
    """From its first line to its last but one, which is the suite that this is a part of; in a clone with the
    environment that is here, beside tables of a graph of one's own."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    (clone / ".venv").symlink_to(sys.prefix)
    for name in ("pyproject.toml", "constraints.txt"):  # older than the environment: nothing is installed
        os.utime(clone / name, (0, 0))
    edge_table = "".join(f"{v},{(v + step) % 60}\n" for v in range(60) for step in (1, 3, 7))
    (clone / "edges.csv").write_text("source,target\n" + edge_table)
    rows = "".join(f"{v},{v % 3},{v % 5},{v % 3}\n" for v in range(60))
    (clone / "features.csv").write_text("id,x,y,label\n" + rows)
    *lines, suite = blocks((ROOT / "README.md").read_text())
    assert suite.startswith("make test ") and len(lines) >= 10
    script = "\n".join(["set -e", *lines])
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(["bash", "-c", script], cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / "page.html").is_file() and list((clone / "figures").glob("*.png"))


def _help(capsys, *words: str) -> str:
    with contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return capsys.readouterr().out


def test_commands_in_running_text_have_the_options_that_they_name(capsys):
    helps, of_all = dict[str, str](), _help(capsys)
    for page, text in mentioned():
        if not re.match(r"halobench [a-z]+(?![a-z|])", text) or text.startswith("halobench run"):
            continue
        two = " ".join(text.split()[1:3])
        name = two if two in cli.COMMANDS else text.split()[1]
        assert name in cli.COMMANDS, f"{page}: {text}"
        if name not in helps:
            helps[name] = _help(capsys, *name.split())
            for kind in re.findall(r"\{([\w,]+)\}", helps[name])[:1]:  # subcommands have help of their own
                helps[name] += "".join(_help(capsys, name, each) for each in kind.split(","))
        for option in re.findall(r"--[a-z-]+", text):
            assert option in of_all or option in helps[name], f"{page}: {text}"


def test_what_pages_ask_of_figures_is_known(monkeypatch, tmp_path, capsys):
    """Names and options. Other tests draw them: those of pages' pictures, and every experiment's at night."""
    monkeypatch.setattr(figures, "make", lambda *given: None)
    for each in of("figures"):
        words = [*each.values[0].rest, "--data-dir", str(tmp_path)]
        assert figures.main(words) == 0, (words, capsys.readouterr().err)
    assert "sancus_broadcasts" in capsys.readouterr().out, "one lists them"


def test_what_pages_ask_of_the_study_is_known(tmp_path, capsys):
    """Graphs, rows and kinds: without any graph, that there is none is all that is wrong."""
    for each in of("study"):
        command = each.values[0]
        own = ["--data-dir", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path / "page.md")]
        assert study.main([*command.rest, *own, "--only-there"]) == 2
        assert "holds none of these graphs" in capsys.readouterr().err, command.line


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", of("fidelity"))
def test_a_table_of_twins_is_printed(command, monkeypatch, tmp_path, capsys):
    """At a hundredth of the scale."""
    words = command.rest
    scale = "0.01"
    if "--scale" in words:
        at = words.index("--scale") + 1
        scale = str(float(words[at]) / 100)
        words = [*words[: at - 1], *words[at + 1 :]]
    monkeypatch.chdir(tmp_path)
    assert fidelity.main([*words, "--scale", scale]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert json.loads(said) if "--json" in words else "twin" in said


@pytest.mark.nightly(600)
def test_the_bench_of_the_page_compares_two_checkouts(tmp_path):
    """docs/howto/bench.md from its first line to its last, in a clone; rounds and parts at their smallest."""
    environment = {**os.environ, "PYTHONPATH": "."}
    git = ["git", "-c", "advice.detachedHead=false"]
    subprocess.run([*git, "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    lines = [command for command in ALL if command.page == "docs/howto/bench.md"]
    assert [command.name for command in lines] == ["git", "bench", "bench", "git"]
    for command in lines:
        words = ["HEAD" if word == "REVISION" else word for word in command.rest]
        if command.name == "git":
            words = [*git, *words]
        else:
            words = [sys.executable, "-m", "harness", "bench", *words]
            if "--rounds" in words:
                words[words.index("--rounds") + 1] = "1"
            else:
                words += ["--rounds", "1", "dataset.scale=0.01"]
        done = subprocess.run(words, cwd=tmp_path / "clone", env=environment, capture_output=True, text=True)
        # 3: the machine was too busy to judge
        assert done.returncode in ((0,) if command.name == "git" else (0, 1, 3)), done.stdout + done.stderr
        assert "Traceback" not in done.stderr
