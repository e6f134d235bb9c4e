"""Tables mark the best of each column and have bytes as a ratio to exact training's."""

from harness.results.report import columns
from tests import traces
from tests.reported import section_of

ROLES = {"exact": "reference", "none": "control", "frugal": "", "good": ""}


def test_the_best_is_marked_and_bytes_are_told_as_a_ratio(tmp_path):
    measured = {"exact": (0.8, 1000), "none": (0.5, 1), "frugal": (0.6, 100), "good": (0.9, 500)}
    for name, (target, size) in measured.items():
        traces.of(tmp_path / name, name, target=target, size=size, ran_on={"role": ROLES[name]})
    traces.stream(traces.prepare(tmp_path / "half", traces.config()), range(2), target=1.0, size=1)
    section = section_of(tmp_path)
    names = [group.first.name for group in section.groups]
    mb = columns.ALL["mb_epoch"]
    for column, winner in ((columns.ACCURACY, "good"), (mb, "frugal")):
        assert [name for name, best in zip(names, section.best(column)) if best] == [winner]
    assert not any(section.best(columns.MAJORITY))
    cells = section.cells()
    headings, rows = list(cells.text), cells.marked("*").to_numpy().tolist()
    ratio = headings.index("MB / exact")
    assert ratio == headings.index("MB per epoch") + 1 and any(ratio in block for block in cells.blocks)
    exact = section.groups[names.index("exact")].estimate(mb.value).mean
    for group, row in zip(section.groups, rows):
        ours = group.estimate(mb.value).mean
        assert row[ratio] == f"{ours / exact:.3f}"
        assert row[ratio - 1] == f"{ours:.3f}{' *' if group.first.name == 'frugal' else ''}"
    assert any("* marks the best" in note for note in section.notes())


def test_what_is_not_told_apart_from_the_best_is_marked_too(tmp_path):
    scores = {"first": (0.9, 0.86), "near": (0.85, 0.89), "behind": (0.5, 0.51)}
    for name, targets in scores.items():
        for seed, target in enumerate(targets):
            traces.of(tmp_path / f"{name}{seed}", name, target=target, seed=seed, size=1000)
    section = section_of(tmp_path)
    marked = dict(zip((group.first.name for group in section.groups), section.best(columns.ACCURACY)))
    assert marked == {"first": True, "near": True, "behind": False}


def test_one_seed_beside_several_is_not_the_best(tmp_path):
    for name, seeds in (("lone", 1), ("whole", 3)):
        for seed in range(seeds):
            traces.of(tmp_path / f"{name}{seed}", name, target=0.9 if name == "lone" else 0.5, seed=seed)
    assert section_of(tmp_path).best(columns.ACCURACY) == [False, False]


def test_without_exact_training_there_is_no_ratio_and_of_equals_no_best(tmp_path):
    for name in ("one", "two"):
        traces.of(tmp_path / name, name)
    cells = section_of(tmp_path).cells()
    assert "MB / exact" not in cells.text and not cells.best.to_numpy().any()


def test_exact_training_that_fetches_features_alike_is_the_measure(tmp_path):
    for features, size in (("once", 10), ("refetch", 1000)):
        how = {"size": size, "ran_on": {"role": "reference"}}
        traces.of(tmp_path / features, "exact", system__features=features, **how)
    section = section_of(tmp_path)
    assert [section.bytes_ratio(group) for group in section.groups] == [1.0, 1.0]


def test_runs_of_unlike_length_are_told_and_have_no_best_sum(tmp_path):
    for name, epochs, size in (("long", 5, 1000), ("short", 3, 900)):
        traces.of(tmp_path / name, name, epochs=epochs, size=size)
    section = section_of(tmp_path)
    assert section.best(columns.ALL["mb_epoch"]) == [False, True]
    assert section.best(columns.ALL["mb_run"]) == [False, False]
    assert any("rows of unlike numbers of epochs are compared" in note for note in section.notes())
    assert not any("unlike numbers" in note for note in section_of(tmp_path / "long").notes())
