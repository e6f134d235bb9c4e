"""Clusters fitted to a printed row, and printed seconds beside predicted ones."""

from __future__ import annotations

import json

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.check import InputError
from harness.claims import evaluate, experiment, fit, published, seconds
from harness.claims.fit import Row, Target
from harness.claims.verdict import Verdict
from harness.report.groups import Estimate
from harness.trace import identity
from tests.test_claims import changed

ROW = Row("capgnn_table7", "r", "g", "c", {}, "", link="inside")
NAMED = {"row": "r", "graph": "g", "cluster": "c", "words": ""}


def modelled(computing: float, waiting: float, idle: float):
    """Stands for a replay: work goes with 1 / efficiency, and messages with 1 / rate beside waits for others,
    which are work as well."""

    def replayed(run, what, words, whole):
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
        total = fit._fit(Row(**{**vars(ROW), "link": None}), NAMED, Target(compute + 2.0, None), [None])
        assert 3.0 / total["efficiency"] + 2.0 + idle / total["efficiency"] == pytest.approx(
            compute + 2.0, rel=5e-3
        )


def test_fits_are_kept_in_the_preset_s_file_beside_those_of_other_graphs(tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "PRESETS", tmp_path)
    (tmp_path / "mine.yaml").write_text("name: mine\nhost_cores: null\n")
    one = {"graph": "cora", "source": "a", "efficiency": 0.5, "inside_gbytes_per_s": 2.0}
    fit.write("mine", [one], "a command")
    fit.write("mine", [{**one, "graph": "ogbn-arxiv"}], "another")
    path = fit.write("mine", [{**one, "efficiency": 0.75}], "a command")
    kept = yaml.safe_load(path.read_text())
    assert kept["name"] == "mine" and {each["graph"]: each["efficiency"] for each in kept["fits"]} == {
        "cora": 0.75,
        "ogbn-arxiv": 0.5,
    }
    with pytest.raises(InputError, match="is no preset"):
        fit.write("none", [one], "a command")


def test_a_fit_is_no_part_of_what_a_run_is():
    plain = {"cluster": {"name": "x", "devices": []}, "seed": 1}
    fitted = {**plain, "cluster": {**plain["cluster"], "fits": [{"graph": "cora"}]}}
    assert identity.fingerprint(fitted, False) == identity.fingerprint(plain, False)


def test_the_fits_that_are_kept_name_rows_that_are_printed():
    """Each source is a place in published.yaml, and stands in the file of a preset that experiments name."""
    for path in fit.PRESETS.rglob("*.yaml"):
        for each in yaml.safe_load(path.read_text()).get("fits") or ():
            entry, place = each["source"].split(" ", 1)
            found = published.entry(entry).published
            found = found.get("values", found)
            for key in place.split("/"):
                found = found[int(key) if isinstance(found, list) else key]
            assert found, each


def test_a_row_wins_over_its_graph_and_that_over_its_size(tmp_path):
    rows = {"a": "system=vanilla epochs=EPOCHS/5", "b": "system=vanilla gpus=1"}
    sizes = {"small": {"graphs": ["cora epochs=50 gpus=8"], "runs": "gpus=4 epochs=10 seed=1", "minutes": 1}}
    given = changed(rows=["a", "b"])
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**given, "rows": rows, "sizes": sizes}))
    plan = experiment.load(tmp_path)["mine"]
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
        figure = seconds.draw(known, "capgnn")
    (ax,) = figure.axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["Vanilla", "CaPGNN", "AdaQP"]
    assert sum(line.get_marker() == "D" for line in ax.lines) == 1


def test_seconds_come_from_what_is_only_compared(tmp_path):
    words = "cluster=cdfgnn compute=roofline fit=printed"
    claim = {"measure": {"replayed": "epoch", "words": words}, "rows": ["a"], "compare": "value"}
    claim |= {"published": 2.0, "direction": None, "compared": True, "row": "A", "control": None}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed(**claim)))
    plan = experiment.load(tmp_path)["mine"]
    (known,) = plan.claims
    verdict = Verdict(evaluate.COMPARED)
    made = evaluate.Result(known.entry, "mine", known.says, verdict, 2.0, Estimate(3.0, None, 1))
    found = seconds.table([made, made], {"mine": plan}).to_dict("records")
    assert [(each["row"], each["model"], each["printed"], each["predicted"]) for each in found] == [
        ("A", seconds.CALIBRATED, 2.0, 3.0)
    ] * 2
