"""The recommendation for a graph: who keeps the score, who is cheapest, and when nothing can be told."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from harness.cli.page import svg
from harness.results.report import scatter
from harness.results.report.advice import advise, comparable
from tests.reported import runs, section_of


def advice_on(folder):
    return advise(comparable(section_of(folder))[0])


EXACT = [0.80, 0.82, 0.81]


@pytest.fixture
def beside(tmp_path):
    """Exact training, and a control that is told apart from it."""
    runs(tmp_path, "exact", EXACT, role="reference", size=1000, seconds=[0.10, 0.11, 0.10])
    runs(tmp_path, "nothing", [0.60, 0.61, 0.62], role="control", size=10, seconds=0.05)
    return tmp_path


def test_the_cheapest_that_keeps_the_score_is_taken(beside):
    runs(beside, "frugal", [0.80, 0.81, 0.82], size=250, seconds=[0.14, 0.15, 0.14])
    runs(beside, "lossy", [0.70, 0.72, 0.71], size=20, seconds=0.01)
    runs(beside, "once", [0.79], size=20, seconds=0.01)
    found = advice_on(beside)
    assert found.decided
    assert found.sentence.startswith(
        "Take frugal to send the fewest bytes: 0.000 MB per epoch, 25 % of exact training's"
    )
    assert "75 % less than the next, exact" in found.sentence
    assert (
        "take exact to need the least time" in found.sentence
        and "which is exact training itself" in found.sentence
    )
    assert any("do not keep it, in points: lossy (-10.00" in reason for reason in found.reasons)
    assert any("One seed cannot tell of these, in points: once (" in reason for reason in found.reasons)


@pytest.mark.parametrize("below, kept", [(0.005, True), (0.03, False)])
def test_a_mean_far_below_is_not_kept_though_its_interval_is_wide(beside, below, kept):
    runs(beside, "wild", [s - below + d for s, d in zip(EXACT, (-0.05, 0.05, 0.0))], size=5)
    choice = advice_on(beside).choices[0]
    assert (choice.best.label == "wild") == kept


def test_without_the_control_nothing_is_decided(tmp_path):
    runs(tmp_path, "exact", EXACT, role="reference", size=1000)
    runs(tmp_path, "frugal", EXACT, size=250)
    found = advice_on(tmp_path)
    assert not found.decided and "Take frugal to send the fewest bytes" in found.sentence
    assert "no finished run of the control, which has none of them" in found.sentence


def test_where_nothing_keeps_the_score_exact_training_is_said_once(beside):
    runs(beside, "lossy", [0.70, 0.72, 0.71], size=20, seconds=0.01)
    found = advice_on(beside)
    assert found.decided
    assert found.sentence == "Take exact, exact training itself: no other row keeps its test accuracy."


def test_what_is_told_apart_below_is_not_kept_however_near(beside):
    runs(beside, "near", [s - 0.005 for s in EXACT], size=5)
    assert advice_on(beside).choices[0].best.label == "exact"


def test_costs_that_are_not_told_apart_are_named(beside):
    for name, more in (("one", 0), ("other", 30)):
        runs(
            beside, name, EXACT, size=[100 + more, 200, 150 - more], seconds=[0.02, 0.03, 0.025 + more / 1e4]
        )
    found = advice_on(beside)
    assert not found.decided and found.sentence.startswith("Cannot tell one system from the others")
    assert (
        "cannot tell what sends the fewest bytes, one (" in found.sentence
        and ") or other (" in found.sentence
    )
    assert [g.label for g in found.choices[0].rivals] == ["other"]


def test_where_the_control_does_as_well_nothing_is_told(tmp_path):
    runs(tmp_path, "exact", EXACT, role="reference")
    runs(tmp_path, "nothing", [0.81, 0.80, 0.81], role="control", size=10)
    runs(tmp_path, "frugal", EXACT, size=100)
    found = advice_on(tmp_path)
    assert not found.decided
    assert "Take frugal to send the fewest bytes" in found.sentence
    assert found.sentence.startswith("What remote rows are worth on metis cannot be told by test accuracy")
    assert "which has none of them and sends 0.000 MB per epoch. More seeds, fewer training" in found.sentence
    assert any("over 3 seeds, not told from 0." in reason for reason in found.reasons)


@pytest.mark.parametrize(
    "roles, seeds, says",
    [
        ((), 3, "no finished run of exact training is among these"),
        (("reference",), 1, "one seed has no interval"),
    ],
)
def test_what_lacks_is_named(tmp_path, roles, seeds, says):
    for role in roles:
        runs(tmp_path, "exact", EXACT[:seeds], role=role)
    runs(tmp_path, "frugal", EXACT[:seeds], size=100)
    found = advice_on(tmp_path)
    assert not found.decided and says in found.sentence and "; " in found.sentence


def test_rows_of_another_setting_are_not_compared(beside):
    runs(beside, "frugal", EXACT, size=1, model__hidden=128)
    section = section_of(beside)
    parts = comparable(section)
    assert [[g.label for g in part.groups] for part in parts] == [["exact", "nothing"], ["frugal"]]
    assert "hidden" in section.groups[-1].label or "hidden" in section.groups[0].label


def test_a_scatter_names_every_row_and_letters_the_front(beside):
    runs(beside, "frugal", EXACT, size=100)
    runs(beside, "worse", [0.7, 0.7, 0.7], size=500)
    section = section_of(beside)
    cost = section.compared[1]
    points = scatter.points(cost, section)
    lettered = {point.group.label: point.letter for point in points}
    assert lettered == {"frugal": "A", "exact": "B", "worse": "C", "nothing": "D"}
    assert [point.named for point in points] == [True, True, False, True]
    assert [point.on_front for point in points] == [True, False, False, False]
    figure = scatter.over_cost(cost, section)
    text = svg.element(figure, "here", "What it shows", {point.gid: point.says for point in points})
    root = ElementTree.fromstring(text)
    titles = [each.text for each in root.iter(f"{{{svg.SVG}}}title")]
    assert sorted(titles) == sorted(point.says for point in points)
    assert root.attrib["role"] == "img" and not {"width", "height"} & root.attrib.keys()
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    assert all(each.startswith("here-") for each in ids) and len(ids) == len(set(ids))
    used = {found[1] or found[2] for each in root.iter() for value in each.attrib.values()
            for found in svg.REFERENCE.finditer(value)}  # fmt: skip
    assert used == set(ids)


def test_bars_that_are_not_far_longer_than_the_picture_lie_within_it(beside):
    runs(beside, "unsteady", [0.74, 0.78, 0.82], size=100, seconds=[0.08, 0.10, 0.12])
    section = section_of(beside)
    for cost in section.compared[1:]:
        (ax,) = scatter.over_cost(cost, section).axes
        (low, high), (least, most) = ax.get_ylim(), ax.get_xlim()
        for point in scatter.points(cost, section):
            x, y = point.cost, point.score
            assert low < y.mean - y.half and y.mean + y.half < high
            assert least <= x.mean - x.half and x.mean + x.half < most


def test_what_has_failed_does_not_squeeze_the_rest_together(beside):
    runs(beside, "good", [0.80, 0.81, 0.82], size=100)
    runs(beside, "failed", [0.2, 0.2, 0.2], size=500)
    section = section_of(beside)
    cost = section.compared[1]
    points = scatter.points(cost, section)
    (ax,) = scatter.over_cost(cost, section).axes
    low, high = ax.get_ylim()
    assert low > 20 and high < 100
    drawn = {line.get_gid(): line for line in ax.lines if line.get_gid()}
    assert len(drawn) == len(points) == 4
    for point in points:
        line = drawn[point.gid]
        assert low < line.get_ydata()[0] < high
        assert (line.get_marker() == "v") == (point.group.label == "failed")
