"""The front of score against bytes: who is on it, and who is named."""

from __future__ import annotations

import pytest

from harness.papers.figures import front
from harness.results.report import groups
from tests import traces
from tests.reported import section_of

# Last scores of two seeds, and bytes. "near" sends less than "exact" and is not told apart from it.
MADE = {
    "exact": ((0.9, 0.901), 1000, "reference"),
    "near": ((0.901, 0.899), 800, ""),
    "worse": ((0.7, 0.7), 600, ""),
    "cheap": ((0.7, 0.701), 100, ""),
    "none": ((0.5, 0.5), 1, "control"),
}


@pytest.fixture
def folder(tmp_path):
    for name, (scores, size, role) in MADE.items():
        for seed, target in enumerate(scores):
            traces.of(
                tmp_path / f"{name}{seed}", name, target=target, size=size, seed=seed, ran_on={"role": role}
            )
    return tmp_path


def test_on_the_front_is_who_is_told_to_be_above_all_that_send_less(folder):
    assert [group.first.name for group in front.front(section_of(folder))] == ["cheap", "near"]


def test_every_row_has_its_name_beside_its_point_or_below(folder):
    compared, _ = groups.load([folder])
    drawn = front.draw(compared, "says", only="", more={"near": "the near one"})
    (ax,) = drawn.axes
    named = {text.get_text() for text in ax.texts}
    below = drawn.get_supxlabel()
    assert {name for name in (*MADE, "the near one") if name in named or name in below} == {
        *MADE.keys() - {"near"},
        "the near one",
    }
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert colours["worse"] == front.GREY and colours["cheap"] != front.GREY
