"""The pictures on the pages are those that the pages' commands draw."""

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.papers.figures import __main__ as figures
from tests.conftest import ROOT
from tests.short import TINY, shorten_figures

PAGES = sorted((ROOT / "docs").glob("**/*.md"))
DRAWN_BY = re.compile(r"Drawn by `halobench figures ([^`]*)`")
# page, the command's arguments
COMMANDS = [
    (page, command) for page in PAGES for command in DRAWN_BY.findall(" ".join(page.read_text().split()))
]
# A picture that stands on two pages is drawn once.
DRAWN = [(page, command, command.split()[0]) for page, command in COMMANDS if page.stem != "index"]


def shown(page: Path, name: str) -> list[Path]:
    """The pictures of figure `name` on a page."""
    found = re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", page.read_text())
    return [(page.parent / path).resolve() for path in found if Path(path).stem.split("-")[0] == name]


def data_of(picture: Path) -> pd.DataFrame:
    return pd.read_csv(picture.with_suffix(".csv"), keep_default_na=False, dtype={"label": str, "title": str})


def outline(data: pd.DataFrame) -> set[tuple]:
    """What is drawn where, without any number."""
    wordless = (
        data[["x_axis", "y_axis", "kind", "label", "title"]]
        .astype(str)
        .apply(lambda column: column.str.replace(r"[\d.]+", "#", regex=True))
    )
    return set(zip(data["panel"], *(wordless[column] for column in wordless)))


def test_every_picture_on_a_page_has_its_command_and_its_data():
    pictures = {
        (page, path)
        for page in PAGES
        for path in re.findall(r"!\[[^\]]*\]\(([^)]+\.png)\)", page.read_text())
    }
    drawn = {
        (page, path)
        for page, path in pictures
        for other, command in COMMANDS
        if page == other and Path(path).stem.split("-")[0] == command.split()[0]
    }
    assert pictures == drawn, "a picture without the command that draws it"
    for page, path in pictures:
        assert (page.parent / path).with_suffix(".csv").is_file(), f"{path} lacks its data"
    for page, command in COMMANDS:
        assert shown(page, command.split()[0]), f"{page} has no picture that {command} draws"
        assert "--size small" in command and "--out docs/figures" in command


# Of their runs some do not settle, which is what they show: another machine's end elsewhere. They are drawn
# shortened, in as many seconds on a slow machine.
UNSETTLED = {"lean_ablation": 90, "staleness": 240}
# A sweep across the border past which training does not settle: a run just past it ends elsewhere on another
# machine, those on either side do not.
ACROSS = ("staleness_stability",)
SHORT = [
    pytest.param(page, command, id=name, marks=pytest.mark.nightly(UNSETTLED[name]))
    for page, command, name in DRAWN
    if name in UNSETTLED
]


@pytest.mark.parametrize("page, command", SHORT)
def test_a_pages_command_draws_what_the_page_shows(page, command, place, monkeypatch, tmp_path):
    """With few epochs, on a small graph: the same panels, axes, lines and names."""
    name = command.split()[0]
    shorten_figures(monkeypatch, place)
    # A graph's own name stands in titles and files only.
    given = [*shlex.split(command), "--graph", TINY, "--out", str(tmp_path)]
    given += ["--results", str(tmp_path / "results"), "--cache", str(place.folder / "cache")]
    assert figures.main(given) == 0
    (mine,) = (path for path in tmp_path.glob(f"{name}*.csv") if not path.stem.endswith("-claims"))
    for theirs in shown(page, name):
        assert outline(data_of(mine)) == outline(data_of(theirs))


@pytest.mark.nightly(200)
@pytest.mark.parametrize("page, command, name", [each for each in DRAWN if each[2] not in UNSETTLED])
def test_a_pages_command_draws_the_pages_data(page, command, name, real_data, tmp_path):
    """In full: the same points, but for seconds; values that training gives within a tenth of a panel's
    range, for machines differ in the last bits: the mean of a line's points, where a sweep crosses the border
    of stability most of them."""
    given = [*shlex.split(command), "--out", str(tmp_path), "--data-dir", str(real_data)]
    given += ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    assert figures.main(given) == 0
    pictures = shown(page, name)
    assert {path.name for path in pictures} <= {path.name for path in tmp_path.glob("*.png")}
    for picture in pictures:
        ours, theirs = data_of(tmp_path / picture.name), data_of(picture)
        keys = ["panel", "x_axis", "y_axis", "kind", "label"]
        assert ours[keys].drop_duplicates().values.tolist() == theirs[keys].drop_duplicates().values.tolist()
        for key, mine in ours.groupby(keys):
            other = theirs.groupby(keys).get_group(key)
            whole = theirs[theirs["panel"] == key[0]]
            for axis in ("x", "y"):
                if re.search(r"\b(CPU )?s\b", key[1 if axis == "x" else 2]):
                    continue  # seconds are the machine's
                values = pd.to_numeric(whole[axis], errors="coerce").dropna()
                apart = (
                    pd.to_numeric(mine[axis], errors="coerce").to_numpy()
                    - pd.to_numeric(other[axis], errors="coerce").to_numpy()
                )
                typical = np.median if name in ACROSS else np.mean
                assert not len(values) or typical(np.abs(apart)) <= 0.1 * np.ptp(values), (key, axis)
