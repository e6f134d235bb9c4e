"""`halobench report compare A B`: differences paired over seeds, a verdict, and what is refused."""

import numpy as np
import pytest
from scipy import stats

from harness import cli
from harness.base.errors import InputError
from harness.results import files
from harness.results.report.compare import repeats
from harness.results.report.versus import side, versus
from tests import traces
from tests.reported import read_once, run, runs


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Three seeds of each: `b` scores higher in every seed, and sends a tenth. Tests add runs of systems of
    other names."""
    folder = tmp_path_factory.mktemp("two")
    size, seconds = np.array([10_000_000, 11_000_000, 12_000_000]), [0.1, 0.2, 0.3]
    runs(folder, "a", [0.70, 0.60, 0.80], size=size.tolist(), seconds=seconds)
    runs(folder, "b", [0.72, 0.61, 0.83], size=(size // 10).tolist(), seconds=[0.2, 0.1, 0.3])
    with read_once():
        yield folder


def told(capsys, *words):
    code = cli.main(["report", "compare", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_differences_are_paired_over_seeds_and_end_in_a_verdict(two, capsys):
    code, out, _ = told(capsys, two / "b*", two / "a*")
    assert code == 0
    ahead = np.array([2.0, 1.0, 3.0])
    half = stats.t.ppf(0.975, 2) * ahead.std(ddof=1) / np.sqrt(3)
    row = next(line for line in out.splitlines() if line.startswith("test acc %"))
    assert f"+{ahead.mean():.2f} ± {half:.2f}" in row and "not told apart" in row
    size = next(line for line in out.splitlines() if line.startswith("MB per epoch"))
    assert "0.100" in size and "A below" in size
    verdict = out.splitlines()[-1]
    assert verdict.startswith(
        f"A is not told apart from B in test accuracy (+2.00 ± {half:.2f} points), sends"
    )
    assert "sends 90.0" in verdict and "is not told apart from B in time" in verdict
    assert verdict.endswith("paired over 3 seeds.")


def test_runs_on_other_files_of_a_graph_are_not_compared(tmp_path):
    for name, digest in (("a", "1"), ("b", "2")):
        runs(tmp_path, name, [0.7, 0.6])
        for folder in tmp_path.glob(f"{name}*"):
            graph = {"files": {"graph.npz": {"sha256": digest}}}
            files.write_json_atomic(folder / "shards.json", {"folder": "", "stats": {}, "graph": graph})
    with pytest.raises(InputError, match="made of other files: give runs on one graph"):
        versus(side(str(tmp_path / "a*")), side(str(tmp_path / "b*")))


def test_a_run_folder_stands_for_its_repeats_beside_it(tmp_path, monkeypatch):
    runs(tmp_path, "a", [0.70, 0.60])
    run(tmp_path, "a", 3, 0.5, model__hidden=128)
    assert [side(str(next(tmp_path.glob(f"a{seed}*")))).seeds for seed in (1, 3)] == [[1, 2], [3]]
    monkeypatch.chdir(next(tmp_path.glob("a1*")))
    assert side(".").seeds == [1, 2]


@pytest.mark.parametrize("score, word", [((0.9, 0.8, 0.95), "better"), ((0.5, 0.4, 0.6), "worse")])
def test_what_is_told_apart_is_said_with_its_direction(two, score, word):
    runs(two, f"is {word}", score)
    found = versus(side(str(two / f"is {word}*")), side(str(two / "a*")))
    assert found.verdict.startswith(f"A is {word} than B in test accuracy")


def test_keys_that_differ_are_listed_and_only_the_system_may(two, capsys):
    runs(two, "wide", [0.7, 0.6], model__hidden=128)
    code, out, err = told(capsys, two / "wide*", two / "a*")
    assert (code, out) == (2, "")
    assert "differ in model.hidden (128 and 64)" in err and err.count("\n") == 1
    code, out, _ = told(capsys, two / "wide*", two / "a*", "--over", "model.hidden")
    assert code == 0 and "  model.hidden: 128 | 64" in out and "seed:" not in out
    code, _, err = told(capsys, two / "b*", two / "a*", "--over", "model.layers")
    assert code == 2 and '--over "model.layers" is the same on both sides' in err


def test_how_gradients_are_summed_is_read_as_it_was_not_as_it_was_asked_for(two):
    """A system whose default is coded sums, asked for exact ones, beside one whose default they are."""
    asked = {"combine___target_": "harness.core.combine.Exact"}
    runs(two, "plain", [0.7, 0.6], ran_on={"combine": "Exact()"})
    runs(two, "exact", [0.7, 0.6], ran_on={"combine": "Exact()"}, **asked)
    runs(two, "coded", [0.7, 0.6], ran_on={"combine": "Quantised(bits=4)"}, **asked)
    runs(two, "usual", [0.7, 0.6], ran_on={"combine": "Quantised(bits=4)"})
    assert "combine" not in versus(side(str(two / "plain*")), side(str(two / "exact*"))).keys
    assert "A and B differ in combine" in refused(two, a="plain*", b="coded*")
    notes = versus(side(str(two / "plain*")), side(str(two / "usual*"))).notes
    assert "Their systems sum gradients differently: A by Exact(), B by Quantised(bits=4)." in notes


def refused(folder, a="a*", b="b*"):
    with pytest.raises(InputError) as error:
        versus(side(str(folder / a)), side(str(folder / b)))
    assert str(error.value).count("\n") == 0
    return str(error.value)


def test_what_cannot_be_compared_is_refused(two):
    assert "holds 2 rows, which differ in system._target_" in refused(two, a="[ab]*")
    runs(two, "other", [0.7, 0.6], dataset__name="dblp")
    assert "A is on cora and B on dblp" in refused(two, b="other*")
    run(two, "late", 9, 0.7)
    assert "A has seeds 1, 2, 3 and B has seeds 9" in refused(two, b="late*")
    traces.stream(traces.prepare(two / "going"), range(2), close=False)
    assert "has not finished" in refused(two, b="going")


def test_one_seed_says_that_it_has_no_interval(two):
    run(two, "single", 2, 0.9)
    found = versus(side(str(two / "single*")), side(str(two / "a*")))
    assert found.notes[0].startswith("One seed in common has no interval")
    assert [line.told for line in found.lines] == [0, 0, 0]
    assert found.verdict.startswith("A is not told apart from B") and found.verdict.endswith("over 1 seed.")


def test_a_side_that_sends_nothing_has_no_ratio(two):
    for name in ("silent", "quiet"):
        runs(two, name, [0.7, 0.6, 0.8], size=[0, 0, 0])
    said = [versus(side(str(two / a)), side(str(two / "silent*"))).verdict for a in ("a*", "quiet*")]
    assert "sends bytes, where B sends none" in said[0] and "sends no bytes, nor does B" in said[1]


def test_runs_are_not_compared_with_themselves(two):
    one, other = (next(two.glob(f"a{seed}*")) for seed in (1, 2))
    for b in (one, other):  # the other seed is one of its repeats
        with pytest.raises(
            InputError, match="^A and B are the same runs, seeds 1, 2, 3: give runs that differ"
        ):
            versus(side(str(one)), side(str(b)))


def test_a_damaged_run_is_named_and_no_neighbour(tmp_path):
    for number, name in enumerate(("good", "bad", "worse")):
        traces.finished(tmp_path / name, traces.config(seed=number))
    for name in ("bad", "worse"):
        (tmp_path / name / "config.yaml").write_text("- 1")
    with pytest.raises(InputError, match=f"^{tmp_path}/worse/config.yaml"):
        side(str(tmp_path / "worse"))


def test_times_of_other_machines_are_left_out(two):
    runs(two, "far", [0.7, 0.6], ran_on={"machine": "Another CPU, 8 cores"})
    found = versus(side(str(two / "far*")), side(str(two / "a*")))
    assert [line.column.key for line in found.lines] == ["test_acc_percent", "mb_epoch"]
    assert any("Times are left out: A ran on Another CPU" in note for note in found.notes)


def test_what_fresh_set_aside_is_no_repeat(tmp_path):
    names = ["vanilla-1w-seed1-aaaaaaaa", "vanilla-1w-seed2-aaaaaaab", "vanilla-1w-seed1-aaaaaaaa.old1"]
    for name, seed in zip(names, (1, 2, 1)):
        traces.finished(tmp_path / name, traces.config(seed=seed, run_dir=name))
    assert [path.name for path in repeats(tmp_path / names[0])] == names[:2]


def test_it_is_said_which_seeds_differences_are_over_and_whose_code_computed_each(tmp_path):
    runs(tmp_path / "old", "a", [0.7, 0.6, 0.8], ran_on={"code": "0ld"})
    runs(tmp_path / "new", "a", [0.7, 0.6], ran_on={"code": "new"})
    runs(tmp_path / "new", "other", [0.7, 0.6, 0.8], ran_on={"code": "new"})
    old, new, other = (side(str(tmp_path / name)) for name in ("old", "new/a*", "new/other*"))
    assert versus(old, new).notes == [
        "Differences are over the seeds that both have: 1, 2.",
        "A was computed by code 0ld, B by new.",
    ]
    assert versus(old, other).notes == [], "two systems are two codes"
