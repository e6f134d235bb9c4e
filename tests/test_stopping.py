"""Early stopping, and what a threshold for labels has no effect on."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.evaluate import EarlyStopping
from harness.core.system import RunFacts
from harness.results.reader import Trace
from harness.run import prepare
from systems.digest_a import DigestA
from tests import systems, training
from tests.graphs import random_graph


@given(st.lists(st.just(math.nan) | st.integers(0, 5), max_size=20), st.integers(0, 4))
def test_it_ends_when_the_best_is_so_many_evaluations_behind(scores, patience):
    """What cannot be scored does not count."""
    stopping = EarlyStopping(patience)
    said = [stopping.over(score) for score in scores]
    seen: list[float] = []
    for score, over in zip(scores, said, strict=True):
        seen += [] if math.isnan(score) else [score]
        behind = len(seen) - 1 - seen.index(max(seen)) if seen else 0
        assert over == (not math.isnan(score) and 0 < patience <= behind)


# The validation score rises and falls with these on the graph of `place`.
HASTY = ("optimiser.lr=0.3", "epochs=400", "evaluate.patience=3", "evaluate.every=2")


def test_a_run_ends_early_and_says_at_which_epoch(place):
    done = place.run(*HASTY)
    assert done.code == 0, done.err
    (run_dir,) = place.runs()
    trace = Trace(run_dir)
    scored = trace.epochs.drop_duplicates("epoch").set_index("epoch")["val_acc"].dropna()
    last, best = int(trace.epochs["epoch"].max()), int(scored.idxmax())
    assert last < 399 and (scored.index > best).sum() == 3 and last == scored.index[-1]
    note = (
        f"stopped early after epoch {last + 1}: 3 evaluations in a row without a better validation accuracy"
    )
    assert any(each.startswith(note) for each in trace.summary["notes"]) and note in done.out
    assert trace.summary["best"]["epoch"] == best and trace.summary["final"]["epoch"] == last


@pytest.mark.nightly(20)
@pytest.mark.parametrize("epochs", [6, 100])
def test_an_extended_run_ends_where_the_longer_one_does(place, epochs):
    """It does not count the evaluation that only the last epoch of the shorter run has, and a run that has
    ended early does not go on."""
    hasty = [word for word in HASTY if not word.startswith("epochs=")]
    assert place.run(*hasty, f"epochs={epochs}", "keep_checkpoint=true").code == 0
    (short,) = place.runs()
    done = place.run("runs", "extend", str(short), "epochs=400", f"cache={place.folder / 'cache'}")
    assert done.code == 0, done.err
    extended = next(path for path in place.runs() if path != short)
    ended = Trace(extended).epochs
    assert place.run(*HASTY, "fresh=true").code == 0
    assert extended.with_name(f"{extended.name}.old1").is_dir(), "it ran elsewhere"
    straight = Trace(extended).epochs
    assert ended["epoch"].max() == straight["epoch"].max() < 399
    assert ended["loss"].equals(straight["loss"])


def test_evaluations_before_a_stop_count_after_it(pool):
    graph = random_graph(40, 4, seed=2)
    for found in training.run(pool, graph, 2, stop_at=3, evaluate={"patience": 2}, epochs=6):
        expected, anew = EarlyStopping(2), EarlyStopping(2)
        assert [anew.over(s.accuracy[1]) for s in found["scores"][3:]] != found["ends"][3:], "tests nothing"
        assert found["ends"] == [expected.over(s.accuracy[1]) for s in found["scores"]]


@pytest.mark.parametrize("split", ["", "val", "test"])
def test_with_two_classes_it_goes_by_auc_but_where_a_split_has_one_of_them_by_accuracy(pool, split):
    graph = random_graph(40, 4, seed=2)
    labels = graph.labels % 2
    if split:
        labels[getattr(graph, split)] = 1
    graph = dataclasses.replace(graph, labels=labels, num_classes=2)
    for found in training.run(pool, graph, 2, evaluate={"patience": 1}):
        seen = [(s.accuracy[1], s.auc[0]) if split else (s.auc[0], s.accuracy[1]) for s in found["scores"]]
        expected, other = EarlyStopping(1), EarlyStopping(1)
        assert [other.over(score) for _, score in seen] != found["ends"], "tests nothing"
        assert found["ends"] == [expected.over(score) for score, _ in seen]


def test_an_asynchronous_system_refuses_it():
    facts = RunFacts(model="gcn", matrix=True, num_workers=2, symmetric=True, multilabel=False, patience=2)
    assert "give evaluate.patience=0" in DigestA().supports(facts)


def test_a_threshold_without_effect_is_told():
    run = systems.asked("dataset=twin/flickr", "evaluate.threshold=0.3")
    said = "^evaluate.threshold=0.3 has no effect: every vertex has one label$"
    with pytest.warns(UserWarning, match=said):
        prepare.check_supported(run, {"symmetric": True, "multilabel": False})
