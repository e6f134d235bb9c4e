"""The front of score against bytes: who is on it, and who is named."""

import pytest

from harness.results import track
from harness.results.report import front, groups, style
from tests import traces
from tests.reported import run, section_of

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


def test_rows_of_one_name_are_told_apart_and_one_that_sends_nothing_is_named(tmp_path):
    for number, method in enumerate(("Metis", "Random", "Block")):
        cut = {"partition___target_": f"harness.data.partition.assign.{method}"}
        run(tmp_path, "a", 1, 0.6 + 0.1 * number, size=100 * number, **cut)
    drawn = front.draw(groups.load([tmp_path])[0])
    assert {text.get_text() for text in drawn.axes[0].texts} == {"a random", "a block"}
    assert drawn.get_supxlabel() == "sends nothing, so not shown: a metis"


def test_the_end_that_all_labels_have_is_left_out_of_names_before_their_partitions(tmp_path):
    for number, (name, method) in enumerate((("a", "Random"), ("b", "Random"), ("c", "Metis"))):
        cut = {"partition___target_": f"harness.data.partition.assign.{method}"}
        run(tmp_path, name, 1, 0.5 + 0.1 * number, size=100 * (number + 1), label=f"{name}, coded", **cut)
    drawn = front.draw(groups.load([tmp_path])[0], only=", coded")
    assert {text.get_text() for text in drawn.axes[0].texts} == {"a", "b", "c metis"}


def test_a_default_setting_is_joined_to_the_tuned_one_which_has_the_name(tmp_path):
    made = {"exact": {"fixed": 0.6, "tuned": 0.9}, "worse": {"fixed": 0.4, "tuned": 0.5}}
    for system, scores in made.items():
        for name, score in scores.items():
            size = 1000 if system == "exact" else 2000
            label = track.label(system, name)
            folder = tmp_path / f"{system}{name}"
            traces.of(folder, system, label=label, target=score, size=size, model__dropout=score)
    compared, _ = groups.load([tmp_path])
    (ax,) = front.draw(compared, "says").axes
    joined = [line for line in ax.lines if line.get_color() == front.JOINED]
    assert [before / after for before, after in (line.get_ydata() for line in joined)] == pytest.approx(
        [0.6 / 0.9, 0.4 / 0.5], rel=0.01
    )
    # Settings are a line of numbers: names are short. A default that is on the front is named too.
    assert {text.get_text() for text in ax.texts} == {"exact", "exact, default", "worse"}


def test_accuracy_of_several_labels_per_vertex_is_called_f1(tmp_path):
    run(tmp_path, "a", 1, 0.6, ran_on={"stats": {"multilabel": True}})
    (group,), _ = groups.load([tmp_path])
    assert front.draw([group]).axes[0].get_ylabel() == "test F1, %"


def test_of_many_names_a_picture_has_the_first():
    assert style.listed([str(i) for i in range(21)]) == ", ".join(map(str, range(21)))
    assert style.listed([str(i) for i in range(30)]).endswith("18, 19, and 10 more")
