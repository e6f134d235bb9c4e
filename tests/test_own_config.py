"""A folder with configs of one's own, beside every command or in the environment."""

import os
from pathlib import Path

import pytest
import yaml

from harness import cli
from harness.base.places import CONF, OWN_CONFIG
from harness.model.plan import advise
from harness.run import runner
from tests import traces


@pytest.fixture
def words(place, monkeypatch):
    """A system of one's own on a small graph, with what a plan needs; the folder with its yaml is not
    named."""
    monkeypatch.syspath_prepend(place.folder / "modules")
    monkeypatch.delenv(OWN_CONFIG, raising=False)
    given = [word for word in place.arguments() if not word.startswith("progress")]
    return ["system=trouble", *given, "cluster=l4"]


def test_plan_takes_the_folder_beside_it_or_from_the_environment(words, place, monkeypatch, capsys):
    conf = str(place.folder / "conf")
    assert cli.main(["plan", *words]) == 2
    assert 'system="trouble" is not known' in (refused := capsys.readouterr().err)
    assert "for one of your own add --config-dir FOLDER" in refused
    assert cli.main(["plan", *words, "--config-dir", conf]) == 0
    beside = capsys.readouterr().out
    assert "trouble, graph, 2 workers on cluster=l4" in beside and not os.environ.get(OWN_CONFIG)
    monkeypatch.setenv(OWN_CONFIG, conf)
    assert cli.main(["plan", *words]) == 0
    assert capsys.readouterr().out == beside


def test_advise_plans_it_beside_the_trees_systems_and_says_how_to_run_it(words, place, monkeypatch):
    monkeypatch.setenv(OWN_CONFIG, str(place.folder / "conf"))
    names = runner.configured()
    monkeypatch.setattr(runner, "configured", lambda: {name: names[name] for name in ("vanilla", "trouble")})
    _, (exact, own), refused = advise.candidates(words[1:])
    assert exact.name == "vanilla" and not own.why and not refused
    assert own.command.startswith(f"halobench run --config-dir {place.folder / 'conf'} system=trouble ")


def test_a_preset_has_every_key_of_its_system():
    """Else a command could not set it."""
    root = Path(CONF) / "system"
    for path in root.glob("*/*.yaml"):
        paths = path, path.parent.with_suffix(".yaml")
        preset, system = (yaml.safe_load(each.read_text()) for each in paths)
        assert preset.keys() == system.keys() or preset["_target_"] != system["_target_"], path


def test_a_page_has_the_command_of_a_system_of_ones_own(words, place, tmp_path):
    config = traces.config()
    config["system"] = {"_target_": "trouble.Trouble", "epoch": 3}
    traces.finished(tmp_path / "results" / "run", config)
    page, conf = tmp_path / "page.html", str(place.folder / "conf")
    assert cli.main(["report", "html", str(tmp_path / "results"), "--out", str(page)]) == 0
    assert "is none of this tree&#39;s: give the folder of its yaml with" in page.read_text()
    given = ["report", "html", str(tmp_path / "results"), "--out", str(page), "--config-dir", conf]
    assert cli.main(given) == 0
    text = page.read_text()
    assert f"halobench run --config-dir {conf} system=trouble " in text and "of this tree" not in text
    assert f"--config-dir {conf}" in text.partition("halobench report html")[2]


def test_a_folder_that_is_not_there_is_one_sentence(words, capsys):
    assert cli.main(["plan", *words, "--config-dir", "nowhere"]) == 2
    said = 'error: HALOBENCH_CONFIG_DIR="nowhere" is not a folder: give the one that system/NAME.yaml is in\n'
    assert capsys.readouterr().err == said
