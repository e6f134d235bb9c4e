"""`halobench new`: files of one's own that run as they are."""

import re
import shlex
from pathlib import Path

import pytest

from harness import cli
from harness.cli.new import KINDS, rendered
from harness.papers.claims import experiment
from tests.conftest import ROOT
from tests.test_tutorial import block


def test_the_tutorial_shows_the_files_of_a_new_system():
    files = rendered("system", "refresh")
    assert files[Path("refresh.py")] == block("python")
    assert files[Path("conf/system/refresh.yaml")] == block("yaml")


def test_the_page_of_data_shows_the_files_of_a_new_data_set():
    """But for the docstrings, which say what is to be done there. tests/test_outside.py trains on them."""
    text, files = (ROOT / "docs" / "data.md").read_text(), rendered("dataset", "ring")
    page = re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)[0]
    assert re.sub(r'""".*?"""', "", files[Path("ring.py")]) == re.sub(r'""".*?"""', "", page)
    shown = re.findall(r"^```yaml\n# \S+\n(.*?)^```", text, re.S | re.M)
    assert shown == [files[Path("conf/dataset/ring.yaml")]]


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written_once_and_the_next_commands_are_said(kind, tmp_path, capsys, refused):
    folder = tmp_path / "of mine"
    words = ["new", kind, "my_idea", "--out", str(folder)]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    for path, text in rendered(kind, "my_idea").items():
        assert (folder / path).read_text() == text and "$" not in text
        assert str(folder / path) in said
    _, _, after = said.partition("next:")
    assert after.count("halobench") >= 1 and str(folder) not in after.replace(shlex.quote(str(folder)), "")
    refused(cli.main, words, "is there already: give another name")


@pytest.mark.parametrize(
    "words, says",
    [
        (["system", "Mine"], 'name="Mine": give up to 50 small letters'),
        (["system", "class"], 'name="class": give up to 50'),
        (["system", "sancus"], 'name="sancus" is one of this program\'s own: give another'),
        (["system", "torch"], 'name="torch" is that of a Python module here: give another'),
        (["sistem", "mine"], 'kind="sistem" is not known; did you mean "system"?'),
    ],
)
def test_a_name_that_cannot_be_is_one_sentence(words, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new", *words]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.iterdir())


def written(place, kind: str, name: str) -> Path:
    """The files of a kind, its module where commands of `place` find it."""
    folder = place.folder / f"new_{name}"
    assert cli.main(["new", kind, name, "--out", str(folder)]) == 0
    for module in folder.glob("*.py"):
        (place.folder / "modules" / module.name).write_text(module.read_text())
    return folder


@pytest.mark.parametrize("kind, name", [("system", "my_idea/experiments"), ("experiment", "bounds")])
def test_a_new_experiment_has_rows_and_can_be_decided(kind, name, tmp_path):
    first, _, inside = name.partition("/")
    assert cli.main(["new", kind, first, "--out", str(tmp_path)]) == 0
    (made,) = experiment.load(tmp_path / inside).values()
    assert {"vanilla, exact", "zero_halo, the control"} <= made.rows.keys() and made.draw


def test_a_second_system_in_a_folder_leaves_what_is_of_both(tmp_path):
    for name in ("first", "second", "e"):  # the last stands in the name of the Dockerfile
        assert cli.main(["new", "system", name, "--out", str(tmp_path)]) == 0
    assert "first" in (tmp_path / "README.md").read_text() and (tmp_path / "second.py").is_file()


@pytest.mark.nightly(90)
def test_a_new_system_passes_its_own_test_and_is_drawn(place):
    folder = written(place, "system", "my_idea")
    done = place.truly("-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder))
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    words = ["--from", folder / "experiments", "--config-dir", folder / "conf", "--out", folder]
    done = place.truly("-m", "harness", "figures", *map(str, words))
    assert done.returncode == 0, done.stderr
    assert (folder / "my_idea-twin-ogbn-arxiv.png").is_file()
