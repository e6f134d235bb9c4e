"""Rank stability over seeds and performance profiles over graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import kendalltau, rankdata

from harness import cli
from harness.check import InputError
from harness.report import advice, groups, profiles, ranks, table
from tests import traces
from tests.test_report_advice import runs


def told(capsys, *words):
    code = cli.main(["report", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


VALUES = arrays.arrays(float, st.tuples(st.integers(2, 6), st.integers(2, 4)), elements=st.floats(0, 1))


@given(VALUES)
def test_ranks_of_every_draw_add_up_and_follow_the_means(values):
    drawn = ranks.draws(values.shape[1])
    order = ranks.bootstrap(values, drawn)
    count = len(values)
    assert order.shape == (len(drawn), count)
    assert np.allclose(order.sum(axis=1), count * (count + 1) / 2)
    for draw, row in zip(drawn[::7], order[::7]):
        assert (row == rankdata(values[:, draw].mean(axis=1))).all()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6, unique=True), st.permutations(range(6)))
def test_agreement_is_kendalls_tau(whole, other):
    other = [place for place in other if place < len(whole)]
    found = ranks.agreement(np.array([other], float), np.array(whole))
    assert found == pytest.approx(kendalltau(other, whole).statistic)


def test_all_draws_are_taken_where_they_are_few_and_the_same_ones_otherwise():
    assert len(ranks.draws(3)) == 27 and len({*map(tuple, ranks.draws(3))}) == 27
    assert ranks.draws(10).shape == (ranks.DRAWS, 10)
    assert (ranks.draws(10) == ranks.draws(10)).all()


@pytest.fixture
def ordered(tmp_path):
    """`first` is ahead in every seed; `second` and `third` change places."""
    runs(tmp_path, "first", [0.9, 0.8, 0.7], size=300, role="reference")
    runs(tmp_path, "second", [0.6, 0.5, 0.4], size=200)
    runs(tmp_path, "third", [0.5, 0.6, 0.4], size=100)
    runs(tmp_path, "nothing", [0.95, 0.95, 0.95], size=1, role="control")
    return tmp_path


def test_a_stable_place_is_told_from_one_that_depends_on_the_seeds(ordered, capsys):
    (section,) = table.sections(groups.load([ordered])[0])
    (score, size, _), left_out = ranks.ranks(advice.comparable(section)[0])
    assert [group.label for group in left_out] == ["nothing"]
    shown = {group.label: (mean, low, high, first) for group, mean, low, high, first in score.rows}
    assert shown["first"] == (1, 1, 1, 1)
    # Seed 1 more often than seed 2 puts `second` before `third`: 27 draws, of which 7 have as many of both.
    assert shown["second"][0] == shown["third"][0] == 2.5
    assert shown["second"][1:] == shown["third"][1:] == (2, 3, 0)
    assert [group.label for group, *_ in size.rows] == ["third", "second", "first"] and size.agree == 1
    code, out, _ = told(capsys, "ranks", ordered)
    assert code == 0 and "rank by test acc % over draws of the seeds 1, 2, 3" in out
    assert "Without a rank: nothing." in out


def test_rows_with_more_seeds_than_others_are_ranked_by_those_that_they_share(tmp_path, capsys):
    runs(tmp_path, "a", [0.5, 0.6, 0.7])
    runs(tmp_path, "b", [0.4, 0.7])
    code, out, _ = told(capsys, "ranks", tmp_path)
    assert code == 0 and "over draws of the seeds 1, 2;" in out
    # Where two have the same seeds, who lacks one of them has no rank.
    runs(tmp_path, "c", [0.5, 0.5, 0.5])
    code, out, _ = told(capsys, "ranks", tmp_path)
    assert code == 0 and "over draws of the seeds 1, 2, 3;" in out and "Without a rank: b." in out


def test_ranks_are_drawn_where_a_folder_is_given(ordered, capsys, tmp_path):
    code, out, _ = told(capsys, "ranks", ordered, "--out", tmp_path / "figures")
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert code == 0 and drawn == [
        f"cora-ranks-{key}.png" for key in ("epoch_s", "mb_epoch", "test_acc_percent")
    ]
    assert all(name in out for name in drawn)


def test_one_seed_has_no_order(tmp_path, capsys):
    runs(tmp_path, "a", [0.5])
    runs(tmp_path, "b", [0.6])
    assert told(capsys, "ranks", tmp_path)[::2] == (
        2,
        "error: no two systems at one setting share two seeds: give more of them, as seed=1,2,3\n",
    )


def learning(folder, system, graph, *, target, size, role="", seeds=(1, 2)):
    for seed in seeds:
        composed = traces.config(seed=seed, epochs=20, system___target_=f"a.{system}.S", dataset__name=graph)
        path = folder / f"{graph}-{system}{seed}"
        traces.finished(path, composed, target=target, size=size, ran_on={"role": role})


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """`frugal` sends a tenth and gets there on cora; on dblp its score stays below. `slow` sends double."""
    folder = tmp_path_factory.mktemp("graphs")
    for graph, reaches in (("cora", 0.8), ("dblp", 0.5)):
        learning(folder, "exact", graph, target=0.8, size=1000, role="reference")
        learning(folder, "frugal", graph, target=reaches, size=100)
        learning(folder, "double", graph, target=0.8, size=2000)
        learning(folder, "nothing", graph, target=0.8, size=1, role="control")
    learning(folder, "once", "cora", target=0.8, size=1)
    return folder


def test_a_profile_is_the_share_of_graphs_within_a_factor_of_the_best(graphs):
    (profile,) = profiles.profiles(groups.load([graphs])[0])
    assert profile.graphs == ["cora", "dblp"]
    ratios = dict(zip((group.label for group in profile.groups), profile.ratios["bytes"]))
    assert set(ratios) == {"exact", "frugal", "double"}, "neither the control nor who is on one graph only"
    # Of 3 units a worker and epoch sends 1 and 2 at `size`, and 10 bytes of weights.
    per_epoch = {name: 3 * size + 10 for name, size in (("exact", 1000), ("frugal", 100), ("double", 2000))}
    assert ratios["frugal"].tolist() == [1, np.inf]
    assert ratios["exact"].tolist() == pytest.approx([per_epoch["exact"] / per_epoch["frugal"], 1])
    assert ratios["double"][1] == pytest.approx(per_epoch["double"] / per_epoch["exact"])
    shares = dict(zip(ratios, profile.share("bytes", 2.0)))
    assert shares == {"exact": 0.5, "frugal": 0.5, "double": 0.5}
    assert dict(zip(ratios, profile.share("bytes", 1e9)))["frugal"] == 0.5


@given(st.floats(1, 100), st.floats(1, 100))
def test_a_share_never_falls_with_the_factor(one, other):
    ratios = np.array([[1.0, 3.0, np.inf], [2.0, 1.0, 50.0]])
    profile = profiles.Profile([], ["a", "b", "c"], {"bytes": ratios}, 0.99)
    low, high = sorted((one, other))
    assert (profile.share("bytes", low) <= profile.share("bytes", high)).all()


def test_profiles_as_table_and_picture(graphs, capsys, tmp_path):
    code, out, _ = told(capsys, "profiles", graphs, "--out", tmp_path)
    assert code == 0 and "by bytes" in out and "by time" in out
    row = next(line for line in out.splitlines() if line.startswith("frugal"))
    assert row.split() == ["frugal", "50", "50", "50", "50", "50", "50", "1", "2"]
    assert (tmp_path / "profiles1.png").stat().st_size > 10_000


def test_a_lower_target_is_reached_by_more(graphs):
    (profile,) = profiles.profiles(groups.load([graphs])[0], target=0.3)
    assert np.isfinite(profile.ratios["bytes"]).all()


@pytest.mark.parametrize(
    "words, says",
    [
        (["--target", "0"], "target=0.0 is out of range"),
        (["--target", "1.2"], "target=1.2 is out of range"),
    ],
)
def test_a_target_that_is_none_is_refused(graphs, capsys, words, says):
    code, _, err = told(capsys, "profiles", graphs, *words)
    assert code == 2 and says in err


def test_one_graph_has_no_profile(ordered):
    with pytest.raises(InputError, match="no two graphs have runs of exact training"):
        profiles.profiles(groups.load([ordered])[0])
