"""The study's page: made of runs alone, started where they are lacking, and what it is asked for is refused in one sentence."""

from __future__ import annotations

import pytest

from harness import study
from harness.figures import runs
from harness.figures.runs import Places
from tests.launching import Place, Started

TINY = "twin/flickr dataset.scale=0.005 dataset.split=random"


@pytest.fixture(scope="module")
def launcher(tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("launcher"))
    yield place
    place.close()


def test_the_page_is_the_table_of_its_runs(launcher, monkeypatch, tmp_path, capsys):
    started = []

    def start(sweep, places):
        started.append(sweep)
        ended = Started(launcher, ["-m", *sweep.replace("gpus=4", "gpus=2").split(), *places.overrides]).end()
        assert ended.code == 0, ended.err

    folders = runs.folders
    monkeypatch.setattr(runs, "start", start)
    monkeypatch.setattr(runs, "folders", lambda sweep, places: folders(sweep.replace("gpus=4", "gpus=2"), places))
    monkeypatch.setattr(study, "GRAPHS", {"tiny": TINY})
    monkeypatch.setattr(runs, "is_here", lambda graph, folder: True)
    page = tmp_path / "page.md"
    arguments = ["--graphs", "tiny", "--systems", "vanilla", "cdfgnn", "--partitions", "random", "--seeds", "1", "--epochs", "2",
                 "--out", str(page), "--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]  # fmt: skip
    assert study.main([*arguments, "--only-there"]) == 2
    assert study.main([*arguments[:2], "--systems", "cdfgnn", *arguments[5:]]) == 0
    assert study.main([*arguments, "--only-there"]) == 0
    assert "Not made when this was written, on tiny: vanilla." in page.read_text()
    assert study.main(arguments) == 0 and "Not made" not in page.read_text()
    assert len(started) == 2 and "partition=ebv" in started[0] and "partition=random" in started[1]
    text = page.read_text()
    assert all(f"| {name} " in text for name in ("vanilla features=refetch", "vanilla features=once", "cdfgnn"))
    assert study.main(arguments) == 0 and len(started) == 2 and page.read_text() == text
    capsys.readouterr()
    assert study.main(["--systems", "vanila"]) == 2
    assert 'system="vanila" is not known' in capsys.readouterr().err


@pytest.mark.parametrize("name", study.SYSTEMS)
def test_what_the_study_asks_for_are_runs(name, tmp_path):
    places = Places(tmp_path, tmp_path, tmp_path)
    partition = "ebv" if name in study.VERTEX_CUT else "random"
    sweep = f"{study.SYSTEMS[name]} dataset={study.GRAPHS['dblp']} partition={partition} gpus=4 epochs=2 seed=1"
    assert len(set(runs.folders(sweep, places))) == len(runs.expand(sweep))
