"""The recommendation for a graph: who keeps the score, who is cheapest, and when nothing can be told."""

import math
from xml.etree import ElementTree

import pytest

from harness.cli.page import content, svg
from harness.results.report.advice import advise, comparable
from tests import traces
from tests.reported import read_once, run, runs, scored_run, section_of

EXACT = [0.80, 0.82, 0.81]


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """Exact training, and a control that is told apart from it, beside which a test's own runs are read."""
    folder = tmp_path_factory.mktemp("beside")
    runs(folder, "exact", EXACT, role="reference", size=1000, seconds=[0.10, 0.11, 0.10])
    runs(folder, "nothing", [0.60, 0.61, 0.62], role="control", size=10, seconds=0.05)
    with read_once():
        yield folder


def advice_on(*folders):
    return advise(comparable(section_of(*folders))[0])


def test_the_cheapest_that_keeps_the_score_is_taken(beside, tmp_path):
    runs(tmp_path, "frugal", [0.80, 0.81, 0.82], size=250, seconds=[0.14, 0.15, 0.14])
    runs(tmp_path, "lossy", [0.70, 0.72, 0.71], size=20, seconds=0.01)
    runs(tmp_path, "once", [0.79], size=20, seconds=0.01)
    found = advice_on(beside, tmp_path)
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
    assert any(" rows are compared. The score is kept by " in reason for reason in found.reasons)
    assert any("One seed cannot tell of these, in points: once (" in reason for reason in found.reasons)


def test_what_costs_next_to_nothing_is_told_in_plain_digits(beside, tmp_path):
    runs(tmp_path, "silent", EXACT, size=1, seconds=0.2)
    assert "99.9 % less than the next, exact" in advice_on(beside, tmp_path).sentence


@pytest.mark.parametrize(
    "below, apart, kept",
    [(0.005, (-0.05, 0.05, 0.0), True), (0.03, (-0.05, 0.05, 0.0), False), (0.005, (0.0, 0.0, 0.0), False)],
    ids=["near", "far below though its interval is wide", "told apart below however near"],
)
def test_what_is_near_and_not_told_apart_is_kept(beside, tmp_path, below, apart, kept):
    runs(tmp_path, "other", [score - below + each for score, each in zip(EXACT, apart)], size=5)
    assert (advice_on(beside, tmp_path).choices[0].best.label == "other") == kept


def test_where_nothing_keeps_the_score_exact_training_is_said_once(beside, tmp_path):
    runs(tmp_path, "lossy", [0.70, 0.72, 0.71], size=20, seconds=0.01)
    found = advice_on(beside, tmp_path)
    assert found.decided
    assert found.sentence == "Take exact, exact training itself: no other row keeps its test accuracy."


def test_costs_that_are_not_told_apart_are_named(beside, tmp_path):
    for name, more in (("one", 0), ("other", 30)):
        runs(
            tmp_path,
            name,
            EXACT,
            size=[100 + more, 200, 150 - more],
            seconds=[0.02, 0.03, 0.025 + more / 1e4],
        )
    found = advice_on(beside, tmp_path)
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
    more = "More seeds, fewer training vertices or partition=random may show it."
    assert f"which has none of them. {more}" in found.sentence
    assert any(
        "test acc cannot tell whether a system uses remote rows here" in reason for reason in found.reasons
    )


def test_a_partition_that_all_rows_have_is_not_advised(tmp_path):
    for name, role in (("exact", "reference"), ("nothing", "control"), ("frugal", "")):
        runs(tmp_path, name, EXACT, role=role, partition___target_="harness.data.partition.assign.Random")
    without = "none of them. More seeds or fewer training vertices may show it."
    assert without in advice_on(tmp_path).sentence
    for name, role in (("exact", "reference"), ("nothing", "control"), ("frugal", "")):
        runs(tmp_path, name, EXACT, role=role, size=1)
    assert without in advice_on(tmp_path).sentence, "random is known not to show it"


def test_exact_training_that_diverged_is_said_to_have(tmp_path):
    for seed in (1, 2):
        composed = traces.config(gpus=1, epochs=2, seed=seed, system___target_="a.exact.S")
        scores, losses = [traces.scored(0.5, 0.5, 0.5)] * 2, [1.0, math.inf]
        scored_run(tmp_path / f"exact{seed}", scores, composed, losses, role="reference")
    runs(tmp_path, "frugal", EXACT)
    assert "exact training diverged; give another setting" in advice_on(tmp_path).sentence


@pytest.mark.parametrize(
    "roles, seeds, says",
    [
        ((), 3, "no finished run of exact training is among these"),
        (("reference",), 3, "no finished run of the control, which has none of them"),
        (("reference",), 1, "one seed has no interval"),
    ],
)
def test_what_lacks_is_named(tmp_path, roles, seeds, says):
    for role in roles:
        runs(tmp_path, "exact", EXACT[:seeds], role=role, size=1000)
    runs(tmp_path, "frugal", EXACT[:seeds], size=100)
    found = advice_on(tmp_path)
    assert not found.decided and says in found.sentence
    assert ("Take frugal to send the fewest bytes" in found.sentence) == (seeds == 3 and bool(roles))


def test_a_control_on_another_partition_says_nothing_of_this_one(beside, tmp_path):
    runs(tmp_path, "frugal", EXACT, size=1, partition___target_="harness.data.partition.assign.Random")
    found = advice_on(beside, tmp_path)
    assert not found.decided
    assert found.sentence.startswith("What remote rows are worth on random is not known: no finished run of")


def test_rows_of_another_setting_are_not_compared(beside, tmp_path):
    runs(tmp_path, "frugal", EXACT, size=1, model__hidden=128)
    section = section_of(beside, tmp_path)
    parts = comparable(section)
    assert [[g.label for g in part.groups] for part in parts] == [["exact", "nothing"], ["frugal"]]
    assert "hidden" in section.groups[-1].label or "hidden" in section.groups[0].label


def test_a_picture_against_a_cost_tells_the_values_of_each_row_and_names_the_front(beside, tmp_path):
    runs(tmp_path, "frugal", EXACT, size=100)
    runs(tmp_path, "worse", [0.7, 0.7, 0.7], size=500)
    section = section_of(beside, tmp_path)
    text, _ = content._against("here", section.compared[1], section)
    root = ElementTree.fromstring(text)
    titles = {each.text.split(":")[0]: each.text for each in root.iter(f"{{{svg.SVG}}}title")}
    assert sorted(titles) == ["exact", "frugal", "nothing", "worse"] and "70.00" in titles["worse"]
    assert root.attrib["aria-label"].endswith(f"On the Pareto front: {titles['frugal']}.")
    assert root.attrib["role"] == "img" and not {"width", "height"} & root.attrib.keys()
    ids = [each.attrib["id"] for each in root.iter() if "id" in each.attrib]
    assert all(each.startswith("here-") for each in ids)


def test_a_run_without_a_score_has_no_curves_on_the_page(beside, tmp_path):
    run(tmp_path, "diverged", 1, math.nan)
    pictures = content._curves("here", comparable(section_of(beside, tmp_path))[0])
    assert len(pictures) == 4
    assert not any("diverged" in picture for picture, _ in pictures)
    assert content._curves("here", section_of(tmp_path)) == []
