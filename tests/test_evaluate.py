"""Scores of splits: those of scikit-learn, the same however vertices are divided, and none where there is
nothing to score.
"""

import math
import warnings
from decimal import Decimal, localcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from harness.core.counted import MacroF1
from harness.core.evaluate import Evaluator
from harness.core.scores import log_odds
from harness.data.partition.assign import assign
from harness.data.partition.stats import constant_score, majority
from harness.data.partition.vertexcut import assign_edges
from tests import jobs, systems, training
from tests.graphs import random_graph
from tests.systems import Settings, shards_of

SPLITS = ("train", "val", "test")


def expected(logits: np.ndarray, labels: np.ndarray, threshold: float) -> tuple[float, float, float]:
    """Accuracy (or micro-F1), AUC and balanced accuracy of a split by scikit-learn; NaN where there is
    none. `threshold`: of a label's probability, where there are several.
    """
    if not len(labels):
        return math.nan, math.nan, math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if labels.ndim == 2:
            predicted = above(threshold, logits)
            both = [c for c in range(labels.shape[1]) if 0 < labels[:, c].sum() < len(labels)]
            aucs = [metrics.roc_auc_score(labels[:, c], logits[:, c]) for c in both]
            balanced = [metrics.balanced_accuracy_score(labels[:, c], predicted[:, c]) for c in both]
            f1 = (
                metrics.f1_score(labels, predicted, average="micro")
                if predicted.any() or labels.any()
                else 0.0
            )
            return f1, *(np.mean(each) if each else math.nan for each in (aucs, balanced))
        odds = torch.softmax(torch.from_numpy(logits), 1).numpy()
        there = [c for c in range(logits.shape[1]) if 0 < (labels == c).sum() < len(labels)]
        there = [1] if logits.shape[1] == 2 and there else there
        aucs = [metrics.roc_auc_score(labels == c, odds[:, c]) for c in there]
        predicted = logits.argmax(1)
        return (
            metrics.accuracy_score(labels, predicted),
            np.mean(aucs) if aucs else math.nan,
            metrics.balanced_accuracy_score(labels, predicted),
        )


def above(threshold: float, logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits)) > threshold


def macro_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The mean F1 of the labels that are there or predicted, by scikit-learn; NaN without any."""
    there = (labels | predicted).any(0)
    f1 = metrics.f1_score(labels, predicted, average=None, zero_division=0)[there]
    return f1.mean() if there.any() else math.nan


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 5),
    multilabel=st.booleans(),
    parts=st.integers(1, 4),
    levels=st.sampled_from([3, 30]),
    empty=st.sampled_from(["", "", "val", "test"]),
    threshold=st.sampled_from([0.5, 0.1, 0.3, 0.9]),
)
def test_scores_are_scikit_learns_on_any_number_of_workers(
    pool, seed, classes, multilabel, parts, levels, empty, threshold
):
    """And a split without vertices has none. Few levels of logits make many ties, where a class is ranked by
    one logit or by the difference of two.
    """
    rng = np.random.default_rng(seed)
    graph = random_graph(40, 4, seed=seed % 50, multilabel=multilabel)
    labels = (
        rng.integers(0, 2, (40, classes)).astype(np.uint8)
        if multilabel
        else rng.integers(0, classes, 40).astype(np.int32)
    )
    graph = graph.replace(labels=labels, num_classes=classes)
    graph = graph.replace(**({empty: np.zeros(40, bool)} if empty else {}))
    # Quarters are exact in any precision: ties here are ties there. A softmax over three or more would round
    # them apart.
    tied = rng.integers(-levels, levels, (40, classes)) / 4
    logits = tied if multilabel or classes == 2 else rng.normal(0, 3, (40, classes))
    assignment = np.arange(40, dtype=np.int32) % parts
    shards = shards_of(graph, assignment, parts)
    scores = pool.run(training.score, parts, logits, threshold, per_worker=shards)
    assert all(str(other) == str(scores[0]) for other in scores)
    found = scores[0].columns()
    for number, split in enumerate(SPLITS):
        mask = getattr(graph, split)
        accuracy, auc, balanced = expected(logits[mask], labels[mask], threshold)
        assert found[f"{split}_acc"] == pytest.approx(accuracy, abs=1e-12, nan_ok=True)
        if split != "train":
            assert found[f"{split}_auc"] == pytest.approx(auc, abs=1e-9, nan_ok=True)
            assert found[f"{split}_balanced"] == pytest.approx(balanced, abs=1e-12, nan_ok=True)
        if split != "train" and multilabel and mask.any():
            want = macro_f1(above(threshold, logits[mask]), labels[mask])
            assert scores[0].more["macro_f1"][number - 1] == pytest.approx(want, abs=1e-12, nan_ok=True)


@given(seed=st.integers(0, 10**6), classes=st.integers(3, 5), scale=st.sampled_from([1.0, 30.0, 3000.0]))
def test_log_odds_are_those_of_exact_arithmetic(seed, classes, scale):
    """However sure the softmax is: at 37 more than the others its probability rounds to 1."""
    z = np.random.default_rng(seed).normal(0, scale, (6, classes))
    found = log_odds(torch.from_numpy(z)).numpy()
    with localcontext(prec=60):
        for row, odds in zip(z, found):
            powers = [Decimal(float(v)).exp() for v in row]
            want = [float((p / sum(powers[:c] + powers[c + 1 :])).ln()) for c, p in enumerate(powers)]
            np.testing.assert_allclose(odds, want, rtol=1e-12, atol=1e-12)


def test_what_rounds_to_a_probability_of_one_is_ranked(pool):
    """Every vertex is surest of class 0, those of that class more so than the others."""
    graph = random_graph(40, 4).replace(labels=(np.arange(40) % 3).astype(np.int32), num_classes=3)
    logits = np.zeros((40, 3))
    logits[:, 0] = np.where(graph.labels == 0, 50.0, 40.0)
    logits[:, 1:] = graph.labels[:, None] == [1, 2]
    shards = shards_of(graph, np.zeros(40, np.int32), 1)
    (found,) = pool.run(training.score, 1, logits, 0.5, per_worker=shards)
    assert found.auc == (1.0, 1.0)


def test_logits_that_are_no_numbers_have_no_scores_and_are_counted(pool):
    graph = random_graph(40, 4)
    shards = shards_of(graph, np.arange(40, dtype=np.int32) % 2, 2)
    logits = np.zeros((40, graph.num_classes))
    logits[3, 0], logits[17] = math.nan, math.inf
    for found in pool.run(training.score, 2, logits, 0.5, per_worker=shards):
        assert found.not_finite == 2
        assert all(math.isnan(value) for value in found.columns().values())


def test_exact_inputs_are_the_same_over_either_cut(pool):
    graph, how, found = random_graph(40, 4), Settings(model=systems.small(layers=3)), {}
    for name, assignment, ids in (
        ("vanilla", assign(graph, "random", 2, 0), "inner"),
        ("cdfgnn", assign_edges(graph, "ebv", 2, 0), "vertices"),
    ):
        shards = shards_of(graph, assignment, 2)
        inputs = pool.run(jobs.exact_inputs, 2, systems.block(name), how, per_worker=shards)
        for shard, own in zip(shards, inputs):
            for layer, h in own.items():
                found.setdefault((name, layer), np.full((40, 4), np.nan))[getattr(shard, ids)] = h
    for layer in (1, 2):
        np.testing.assert_allclose(found.pop(("cdfgnn", layer)), found.pop(("vanilla", layer)), rtol=1e-5)
    assert not found, "no other layer has inputs that are kept"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(5, 9))
def test_the_best_constant_answer_is_that_of_all_of_them(counts, vertices):
    """Of several labels per vertex: every set of labels, tried."""
    counts = np.array(counts)
    sets = [np.array([bool(n >> c & 1) for c in range(len(counts))]) for n in range(1, 2 ** len(counts))]
    best = max(2 * counts[s].sum() / max(vertices * s.sum() + counts.sum(), 1) for s in sets)
    assert constant_score(counts, vertices, multilabel=True) == pytest.approx(best if counts.any() else 0.0)
    assert constant_score(counts, vertices, multilabel=False) == max(counts) / vertices


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_majority_is_that_of_the_vertices_of_each_split(multilabel):
    graph = random_graph(50, 4, multilabel=multilabel).replace(val=np.zeros(50, bool))
    found = majority(graph)
    assert found["val"] is None
    for split in ("train", "test"):
        labels = graph.labels[getattr(graph, split)]
        counts = labels.sum(0) if multilabel else np.bincount(labels)
        assert found[split] == constant_score(counts, len(labels), multilabel) and 0 < found[split] <= 1


def test_after_a_forward_pass_that_failed_no_inputs_are_kept():
    strategy = SimpleNamespace(kept=None)
    with pytest.raises(ZeroDivisionError):
        Evaluator.hidden(SimpleNamespace(strategy=strategy, logits=lambda model: 1 / 0), None)
    assert strategy.kept is None


def test_macro_f1_of_one_label_is_scikit_learns():
    labels, predicted = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 1, 1, 3, 0])
    score = MacroF1()
    found = score.value(score.counts(predicted, torch.zeros(6, 5), labels).double())
    assert found == pytest.approx(metrics.f1_score(labels, predicted, average="macro", zero_division=0))
