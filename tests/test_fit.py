"""Clusters fitted to a printed row, and printed seconds beside predicted ones."""

import json
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.papers.claims import evaluate, experiment, fit, published, seconds
from harness.papers.claims.claim import Size
from harness.papers.claims.fit import Row, Target
from harness.papers.claims.verdict import Verdict
from harness.results import identity
from harness.results.report.estimate import Estimate
from tests.test_claims import changed

ROW = Row("capgnn_table7", "r", "g", "c", {"epoch": "", "waiting": ""}, "", link="inside")
ALONE = Row(**{**vars(ROW), "link": None, "printed": {"epoch": ""}})
NAMED = {"row": "r", "graph": "g", "cluster": "c", "words": ""}


def modelled(computing: float, waiting: float, idle: float):
    """Stands for a replay: work goes with 1 / efficiency, and messages with 1 / rate beside waits for others,
    which are work as well."""

    def replayed(run, what, words, whole):
        assert words.startswith(" fit=printed cluster=c "), "the replay is told of the fit"
        tried = json.loads(words.partition("cluster.fits=")[2])[0]
        compute = computing / tried["efficiency"]
        wait = waiting / tried.get("inside_gbytes_per_s", 1.0) + idle / tried["efficiency"]
        return {"epoch": compute + wait, "exposed": wait}[what]

    return replayed


@given(*[st.floats(0.05, 20)] * 2, st.floats(0, 0.5))
def test_a_row_has_its_printed_seconds_on_the_cluster_that_is_fitted_to_it(efficiency, rate, idle):
    model = modelled(3.0, 2.0, idle)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "replayed", model)
        compute, wait = 3.0 / efficiency, 2.0 / rate + idle / efficiency
        found = fit._fit(ROW, NAMED, Target(compute, wait), [None])
        assert found["efficiency"] == pytest.approx(efficiency, rel=5e-3)
        assert found["inside_gbytes_per_s"] == pytest.approx(rate, rel=2e-2)
        ratio = fit._fit(ROW, NAMED, Target(3.0, 2.0 / rate + idle, relative=True), [None])
        assert ratio["efficiency"] == 1 and ratio["inside_gbytes_per_s"] == pytest.approx(rate, rel=2e-2)
        total = fit._fit(ALONE, NAMED, Target(compute + 2.0, None), [None])
        assert 3.0 / total["efficiency"] + 2.0 + idle / total["efficiency"] == pytest.approx(
            compute + 2.0, rel=5e-3
        )


def test_waits_that_no_rate_takes_away_are_told(monkeypatch, capsys):
    monkeypatch.setattr(fit, "replayed", modelled(3.0, 2.0, 1.0))
    found = fit._fit(ROW, NAMED, Target(3.0, 0.5), [None])
    assert (found["efficiency"], found["inside_gbytes_per_s"], found["missed_by"]) == (
        1.0,
        fit.FASTEST,
        2.004,
    )
    assert "c, g: not fitted; seconds over the printed ones: efficiency 1, inside_gbytes_per_s 2" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("waiting, printed", [(0.0, 0.5), (2.0, 0.0)])
def test_no_rate_fits_a_wait_of_nothing(waiting, printed, monkeypatch):
    monkeypatch.setattr(fit, "replayed", modelled(3.0, waiting, 0.0))
    with pytest.raises(InputError, match=r"^r waits \d s for messages on g, and .* s in print: no rate of"):
        fit._fit(ROW, NAMED, Target(3.0, printed), [None])


def test_what_is_printed_of_many_epochs_is_an_epoch_s_share():
    values = {"values": {"a": 10, "b": 4, "c": "OOM"}}
    entry = replace(published.entry("capgnn_table7"), published=values)
    both = {"epoch": "a", "waiting": "b"}
    assert fit._target(entry, both, 2, "fits[0]") == Target(3.0, 2.0)
    assert fit._target(entry, {"epoch": "a"}, 2, "fits[0]") == Target(5.0, None)
    relative = {"computing": "a", "waiting": "b"}
    assert fit._target(entry, relative, 1, "fits[0]") == Target(10.0, 4.0, relative=True)
    assert fit._target(entry, {"epoch": "a", "waiting": "c"}, 1, "fits[0]") is None
    with pytest.raises(InputError, match=r"^fits\[0\].printed: capgnn_table7 leaves -6 s to compute"):
        fit._target(entry, {"epoch": "b", "waiting": "a"}, 1, "fits[0]")


@pytest.mark.parametrize(
    "given,said",
    [
        ({"over": 0}, "fits[0].over=0.0 is out of range: give more than 0"),
        ({"link": "wire"}, 'fits[0].link="wire" is not known'),
        ({"link": "inside"}, "fits[0].link=inside: give it with printed.waiting"),
        ({"printed": {"time": "x"}}, 'fits[0].printed="time" is not known'),
        ({"printed": {"waiting": "x"}}, "fits[0].printed=['waiting']: give epoch"),
        ({"entry": "capgnn_table77"}, 'fits[0].entry="capgnn_table77" is not known'),
        ({"clusters": "x"}, "fits[0].clusters is not a key of Row"),
    ],
)
def test_a_row_that_nothing_can_be_fitted_to_is_one_sentence(given, said, tmp_path):
    row = {"entry": "capgnn_table7", "row": "a", "graph": "cora", "cluster": "cdfgnn", "words": ""}
    row |= {"printed": {"epoch": "x"}} | given
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed() | {"fits": [row]}))
    with pytest.raises(InputError) as caught:
        fit.fitted(experiment.load(tmp_path)["mine"], "small", None)
    assert said in str(caught.value)


def test_an_experiment_without_rows_or_runs_to_fit_to_is_one_sentence(tmp_path, refused):
    for words, said in (
        (["halos"], "names no rows to fit clusters to"),
        (["nosuch"], 'experiment="nosuch" is not known'),
        (["modelled_sancus", str(tmp_path)], "has not been run on"),
    ):
        refused(fit.main, words, said)


def test_fits_are_kept_in_the_preset_s_file_beside_those_of_other_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "PRESETS", tmp_path)
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nhost_cores: null\n")
    one = {"graph": "cora", "source": "a", "efficiency": 0.5, "inside_gbytes_per_s": 2.0}
    fit.write("mine", [one], "a command")
    fit.write("mine", [{**one, "graph": "ogbn-arxiv"}], "another")
    path.write_text(path.read_text() + "# a remark\nmatrix: 3  # and a key behind\n")
    fit.write("mine", [{**one, "efficiency": 0.75}], "a command")
    kept = yaml.safe_load(path.read_text())
    assert (kept["name"], kept["matrix"]) == ("mine", 3) and path.read_text().count("fits:") == 1
    efficiencies = {each["graph"]: each["efficiency"] for each in kept["fits"]}
    assert efficiencies == {"cora": 0.75, "ogbn-arxiv": 0.5}
    with pytest.raises(InputError, match="is no preset"):
        fit.write("none", [one], "a command")


def test_a_fit_is_no_part_of_what_a_run_is():
    plain = {"cluster": {"name": "x", "devices": []}, "seed": 1}
    fitted = {**plain, "cluster": {**plain["cluster"], "fits": [{"graph": "cora"}]}}
    assert identity.fingerprint(fitted, False) == identity.fingerprint(plain, False)


def test_the_fits_that_are_kept_name_rows_that_are_printed():
    """Each source is a place in published.yaml, and stands in the file of a preset that experiments name."""
    asked, seen = "".join(path.read_text() for path in experiment.FOLDER.glob("*.yaml")), 0
    for path in fit.PRESETS.rglob("*.yaml"):
        for each in yaml.safe_load(path.read_text()).get("fits") or ():
            seen += 1
            assert str(path.relative_to(fit.PRESETS).with_suffix("")) in asked
            entry, place = each["source"].split(" ", 1)
            found = published.entry(entry).published
            found = found.get("values", found)
            for key in place.split("/"):
                found = found[int(key) if isinstance(found, list) else key]
            assert found, each
    assert seen > 50


def test_a_row_wins_over_its_graph_and_that_over_its_size():
    rows = {"a": "system=vanilla epochs=EPOCHS/5", "b": "system=vanilla gpus=1"}
    size = Size(["cora epochs=50 gpus=8"], "gpus=4 epochs=10 seed=1", 1)
    plan = experiment.Experiment("mine", "t", rows, {"small": size})
    assert plan.sweeps("a", "small") == ["system=vanilla epochs=10 dataset=cora gpus=8 seed=1"]
    assert plan.sweeps("b", "small") == ["system=vanilla gpus=1 dataset=cora epochs=50 seed=1"]


# -- printed seconds --


def printed(row: str, model: str, said: float, ours: float) -> dict:
    return dict(
        paper="capgnn", entry="capgnn_table7", says="s", row=row, model=model, printed=said, predicted=ours
    )


def test_errors_leave_out_the_row_of_the_fit_and_pictures_show_it():
    known = pd.DataFrame(
        [
            printed("Vanilla", seconds.FITTED, 2, 2.0),
            printed("Vanilla", seconds.BEFORE, 2, 20.0),
            printed("CaPGNN", seconds.CALIBRATED, 2, 4.0),
            printed("CaPGNN", seconds.BEFORE, 2, 0.5),
            printed("AdaQP", seconds.CALIBRATED, 3, 3.0),
        ]
    )
    assert seconds.errors(known) == pytest.approx(
        {seconds.CALIBRATED: np.log(2) / 2, seconds.BEFORE: np.log(4)}
    )
    with matplotlib.rc_context():
        (ax,) = seconds.draw(known, "capgnn").axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["Vanilla", "CaPGNN", "AdaQP"]


def test_seconds_come_from_what_is_only_compared(tmp_path):
    words = "cluster=cdfgnn compute=roofline fit=printed"
    claim = {"measure": {"replayed": "epoch", "words": words}, "rows": ["a"], "compare": "value"}
    claim |= {"published": 2.0, "direction": None, "compared": True, "row": "A", "control": None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed(**claim)))
    plan = experiment.load(tmp_path)["mine"]
    (known,) = plan.claims
    verdict = Verdict(evaluate.COMPARED)
    made = evaluate.Result(known, "mine", verdict, evaluate.Measured(Estimate(3.0, None, 1)))
    found = seconds.table([made, made]).to_dict("records")
    assert [(each["row"], each["model"], each["printed"], each["predicted"]) for each in found] == [
        ("A", seconds.CALIBRATED, 2.0, 3.0)
    ] * 2
