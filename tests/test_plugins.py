"""docs/plugins.md, followed: a model and a score from outside the tree, one file and one yaml each."""

import re

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.results.reader import Trace
from harness.results.report import columns, formats, groups
from harness.run import config
from tests.conftest import ROOT
from tests.test_config_refused import accept
from tests.test_identity import run_of

PAGE = (ROOT / "docs" / "plugins.md").read_text()


@pytest.fixture(scope="module")
def followed(launcher):
    """The launcher's folder with the page's files; what makes Hydra look there."""
    files = dict(zip(("mixed", "within"), re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)))
    yamls = dict(zip(("model/mixed", "score/within"), re.findall(r"^```yaml\n(.*?)^```", PAGE, re.S | re.M)))
    for name, text in files.items():
        (launcher.folder / "modules" / f"{name}.py").write_text(text)
    for name, text in yamls.items():
        path = launcher.folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return launcher.more


def losses(trace: Trace) -> np.ndarray:
    return trace.epochs.groupby("epoch")["loss"].first().to_numpy()


def test_a_model_and_a_score_are_trained_traced_and_shown(place, followed):
    model, scores = (followed, "model=mixed", "model.dropout=0"), "score=[within,macro_f1]"
    for workers in (1, 2):
        first = place.run(*model, scores, f"gpus={workers}", "verbose=true")
        assert first.code == 0, first.err
    done = place.run(*model, "model.own=1", "gpus=2")
    assert done.code == 0, done.err
    traces = {(t.config["workers"], t.config["model"]["own"]): t for t in map(Trace, place.runs())}
    np.testing.assert_allclose(losses(traces[1, 0.5]), losses(traces[2, 0.5]), rtol=1e-4)
    assert not np.allclose(losses(traces[2, 0.5]), losses(traces[2, 1.0]), rtol=1e-3), "neighbours are used"
    for workers in (1, 2):
        trace = traces[workers, 0.5]
        values = trace.metrics.pivot_table(index="epoch", columns="name", values="value")
        accuracy = trace.epochs.groupby("epoch")["test_acc"].first()
        assert (values["test_within_two"] >= accuracy - 1e-12).all() and len(values) == 6
        scored = trace.metrics[trace.metrics["name"].str.startswith(("val_", "test_"))]
        assert set(scored["worker"]) == {0}
        best = trace.summary["best"]
        assert best["test_macro_f1"] == values.loc[best["epoch"], "test_macro_f1"]
    assert re.search(r"beside it .*, within two \d+\.\d\d %, macro f1 \d+\.\d\d %", first.out)
    shown = formats.plain(groups.load([place.results])[0])
    assert "within two %" in shown and "macro f1 %" in shown and "model.own=1" in shown
    (column,) = columns.more(["within_two"])
    assert f"{column.value(traces[2, 0.5].summary):.2f}" in shown
    assert "within_two_percent" in formats.csv(groups.load([place.results])[0]).splitlines()[0]


def test_a_mistake_in_either_is_one_sentence(place, followed, monkeypatch):
    monkeypatch.syspath_prepend(place.folder / "modules")
    for words, said in (
        (("model=mixed", "model.own=2"), "^model.own=2.0 is out of range"),
        (("score=withn",), '^score="withn" is not known'),
        (("score=within", "score.within_two.best=x"), "^score.within_two.best=x is not a whole number"),
    ):
        with pytest.raises(InputError, match=said):
            accept(followed, *words)
    with pytest.raises(InputError, match='score.mine._target_="torch.nn.Linear" is not a Score'):
        accept("+score.mine._target_=torch.nn.Linear")
    for name in ("auc", "test_acc", "last_auc", "balanced_acc", "majority"):
        with pytest.raises(InputError, match=f"score.{name} has the name of a score that every run has"):
            accept(f"+score.{name}._target_=harness.core.counted.MacroF1")


def test_a_run_without_scores_of_its_own_is_the_run_of_before():
    run = run_of()
    assert "score" not in run.composed and run.scores == {}
    assert config.completed({**run.composed, "score": {}}) == config.completed(run.composed)
    assert config.completed(run_of("score=macro_f1").composed) != config.completed(run.composed)
