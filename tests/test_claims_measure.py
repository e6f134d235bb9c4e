"""The measures that experiments name: of metrics, of the partition, and of how soon a score is reached."""

import math
import re
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.model.replay.settings import parse
from harness.model.replay.times import times_of
from harness.papers.claims import evaluate, experiment, measure
from harness.papers.claims.claim import Claim, Size
from harness.papers.claims.measure import HOW, best_validation, measure_of
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Run
from tests import traces
from tests.recorded import APART, recorded
from tests.reported import scored_run

# By epoch: worker 0's metric x in two layers, what could have been, and worker 1's.
FIRST = [{(0, "x"): 4.0, (1, "x"): 1.0, (0, "all"): 10.0}, {(0, "x"): 2.0, (1, "x"): 3.0, (0, "all"): 10.0}]
SECOND = [{(0, "x"): 6.0, (1, "x"): 0.0, (0, "all"): 10.0}, {(0, "x"): 0.0, (1, "x"): 0.0, (0, "all"): 10.0}]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return Run(traces.measured(tmp_path_factory.mktemp("measured"), FIRST, traces.config(epochs=2), SECOND))


@pytest.mark.parametrize(
    "given,value",
    [
        ({"metric": "x"}, (5 + 5 + 6 + 0) / 4),  # layers are added up
        ({"metric": "x", "layer": 0}, (4 + 2 + 6 + 0) / 4),
        ({"metric": "x", "epochs": [2, 2]}, 2.5),
        ({"metric": "x", "how": "max"}, 6),
        ({"metric": "x", "how": "first"}, 5.5),
        ({"metric": "x", "how": "last"}, 2.5),
        ({"metric": "x", "how": "sum", "layer": 1}, 4),
        ({"metric": "x", "layer": "last", "times": 100}, 100 * (1 + 3 + 0 + 0) / 4),
        ({"metric": "x", "layer": 0, "how": "spread"}, 1.0),  # 2 and 0 in the last epoch
        ({"bytes_per_row": "forward", "layer": 0}, 64 / 4),
        ({"metrics": ["x"], "of": ["all"]}, 100 * 16 / 40),
        ({"metrics": ["x"], "of": ["all"], "layer": 0}, 100 * 12 / 40),
        ({"metrics": ["x"], "of": ["all"], "least": True}, 100 * 5 / 20),
        ({"metrics": ["x", "all"], "of": ["all"], "epochs": [1, 1]}, 100 * 31 / 20),
    ],
)
def test_metrics_by_epoch_and_worker(run, given, value):
    assert measure_of(given).value(run, math.nan) == pytest.approx(value)


def test_the_least_share_of_nothing_is_no_value(tmp_path):
    nothing, composed = [{(0, "x"): 0.0, (0, "all"): 0.0}], traces.config(gpus=1, epochs=1)
    run = Run(traces.measured(tmp_path / "run", nothing, composed))
    assert math.isnan(measure_of({"metrics": ["x"], "of": ["all"], "least": True}).value(run, math.nan))


def test_statistics_of_the_partition(tmp_path):
    stats = {"halo": [10, 30], "inner": [50, 50], "vertices": 100}
    run = Run(traces.finished(tmp_path / "run", stats=stats))
    for given, value in [
        ({"shards": "halo"}, 30),
        ({"shards": "halo", "how": "sum"}, 40),
        ({"shards": "halo", "of": "inner"}, 0.4),
        ({"shards": "vertices"}, 100),
    ]:
        assert measure_of(given).value(run, math.nan) == pytest.approx(value)
    with pytest.raises(InputError, match="has no rim; it has .*halo"):
        measure_of({"shards": "rim"}).value(run, math.nan)


def test_a_metric_is_divided_by_the_mean_of_a_statistic(tmp_path):
    folder = traces.measured(tmp_path / "run", FIRST, traces.config(epochs=2), SECOND)
    traces.prepare(folder, traces.config(epochs=2), stats={"halo": [10, 30]})
    assert measure_of({"metric": "x", "how": "max", "per": "halo"}).value(Run(folder), math.nan) == 6 / 20


@pytest.mark.parametrize(
    "epochs,value", [([0, 2, 4, 6], 0.0), ([0, 1, 5], 0.6), ([3], math.nan), ([], math.nan)]
)
def test_irregularity_is_the_spread_of_the_distances(epochs, value):
    active = np.zeros((8, 1))
    active[epochs] = 1
    assert HOW["irregularity"](active) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("epochs, value", [([1, 1, 5, 3, 2, 0], 3.0), ([4, 1, 1], -3.0), ([1, 2], np.nan)])
def test_the_middle_third_of_training_beside_both_others(epochs, value):
    of_two_workers = np.array([epochs, epochs], dtype=float).T
    assert HOW["middle"](of_two_workers) == pytest.approx(value, nan_ok=True)


def test_workers_that_take_turns_can_be_regular_each_and_irregular_together():
    active = np.zeros((9, 2))
    active[0::4, 0] = active[1::4, 1] = 1
    assert HOW["irregularity"](active) == 0 < HOW["irregularity_of_any"](active)


def test_epochs_and_bytes_to_a_share_of_another_rows_best(tmp_path):
    run = Run(traces.finished(tmp_path / "run", traces.config(epochs=30), target=0.8))
    best = best_validation(run)
    by_epoch = [measure_of({"to": share, "of": "a", "in": "epochs"}) for share in (0.1, 0.5, 1.0)]
    found = [measure.value(run, best) for measure in by_epoch]
    assert found == sorted(found) and found[0] < found[-1] <= 30
    assert by_epoch[0].reference == "a" and by_epoch[0].scored
    assert math.isnan(by_epoch[-1].value(run, best + 1)), "more than it ever has"
    sent = measure_of({"to": 1.0, "of": "a", "in": "bytes"}).value(run, best)
    # Two workers: 64 and 128 bytes of rows, 10 of weights.
    assert sent == pytest.approx(found[-1] * 2 * (64 + 128 + 10) / 1e6)
    by_wall = measure_of({"to": 1.0, "of": "a", "in": "wall"}).value(run, best)
    assert by_wall == pytest.approx(found[-1] * run.summary["epoch_s"])


@pytest.fixture(scope="module")
def decided(tmp_path_factory) -> Callable[..., evaluate.Result]:
    """What a claim comes to, of two rows on two graphs, three seeds each; their folders are read once."""
    rows, folder = {"fast": "system=fast", "slow": "system=slow"}, tmp_path_factory.mktemp("decided")
    plan = experiment.Experiment("mine", "t", rows, {"small": Size(["cora", "dblp"], "seed=1,2,3", 1)})
    folders = {
        sweep: [
            traces.finished(
                folder / f"{row}{bonus}{seed}",
                traces.config(seed=seed, epochs=20),
                target=target + bonus + 0.003 * seed,
            )
            for seed in (1, 2, 3)
        ]
        for row, target in (("fast", 0.8), ("slow", 0.7))
        for sweep, bonus in zip(plan.sweeps(row, "small"), (0.0, 0.1))
    }
    runs = evaluate._Runs(plan, folders.__getitem__)
    common = {"entry": "sancus_claim_accuracy", "says": "", "direction": "above"}
    return lambda **claim: runs.decide(Claim(**{**common, **claim}))


def test_a_claim_on_one_graph_reads_its_runs_alone(decided):
    keys = {"measure": "test_acc_percent", "rows": ["fast"]}
    both, one = (decided(graph=graph, **keys).ours.mean for graph in (None, "dblp"))
    assert 3 < one - both < 5, "dblp's accuracies rise to 10 points above cora's"


def test_the_best_case_is_the_largest_over_graphs(decided):
    keys = {"measure": "test_acc_percent", "rows": ["fast", "slow"], "compare": "ratio"}
    found = {
        name: decided(**keys, **more).ours.mean
        for name, more in {
            "cora": {"graph": "cora"}, "dblp": {"graph": "dblp"},
            "max": {"across": "max"}, "min": {"across": "min"}, "mean": {},
        }.items()
    }  # fmt: skip
    low, high = sorted([found["cora"], found["dblp"]])
    assert low < high and (found["min"], found["max"]) == (low, high)
    assert found["mean"] == pytest.approx((low + high) / 2)


def test_two_ratios_are_held_against_one_another(decided):
    keys = {"measure": "test_acc_percent", "compare": "ratio_of_ratios", "graph": "cora"}
    rows = {"once": ["fast", "fast", "slow", "slow"], "twice": ["fast", "slow", "slow", "fast"]}
    same, squared = (decided(rows=each, **keys) for each in rows.values())
    ratio = decided(**{**keys, "compare": "ratio"}, rows=["fast", "slow"]).ours.mean
    assert (same.ours.mean, same.verdict.word) == (1, "no effect here")
    assert (
        squared.ours.mean == pytest.approx(ratio**2, rel=1e-4) and squared.verdict.word == "direction holds"
    )


def test_how_much_a_curve_falls_from_one_evaluation_to_the_next(tmp_path, monkeypatch):
    run = Run(traces.finished(tmp_path / "run", traces.config(epochs=20)))
    rising = measure_of({"validation": "falls"})
    assert rising.scored and rising.value(run, math.nan) == 0
    monkeypatch.setattr(measure, "_validation", lambda run: np.array([50.0, 60, 54, 58, 55, 55]))
    assert rising.value(run, math.nan) == pytest.approx((6 + 3) / 5)


def test_how_soon_a_row_gets_to_anothers_best(decided):
    keys = {"rows": ["fast", "slow"], "compare": "ratio", "direction": "below"}
    # Within the slower row's reach both get there; to the faster one's best the slower never does.
    near = decided(measure={"to": 0.9, "of": "slow", "in": "epochs"}, **keys)
    assert near.verdict.word == "direction holds" and near.ours.mean < 1
    far = decided(measure={"to": 1.0, "of": "fast", "in": "epochs"}, **keys)
    assert far.verdict.word == "cannot tell" and "never gets there" in far.verdict.why


def test_runs_that_lack_what_is_asked_for_decide_nothing(decided):
    found = decided(measure={"metric": "epsilon"}, rows=["fast"])
    assert found.verdict.word == "cannot tell" and "has no epsilon" in found.verdict.why


WORDS = " ".join(APART)


@pytest.fixture
def modelled(tmp_path) -> Run:
    """A run of two workers that compute 0.01 and 0.02 s, then exchange a megabyte each way."""
    return Run(recorded(tmp_path / "run", [[0.01, 0.02]] * 3))


def of(run: Run, what, row: str = "", **given) -> float:
    """What is modelled of a run, over WORDS where no others are given."""
    return measure_of({"replayed": what, "words": WORDS, **given}, row=row).value(run, math.nan)


@pytest.fixture
def times(modelled):
    _, replayer, _ = parse([str(modelled.trace.run_dir), *APART])
    return times_of(replayer.replay(modelled.trace))


def test_a_modelled_epoch_is_the_replays(modelled, times):
    slowest = max(times.workers, key=lambda own: own.epoch)
    assert of(modelled, "epoch") == times.epoch
    assert of(modelled, "compute") == slowest.compute + slowest.rest
    flights = [own.comm for own in times.workers]
    computing = [own.compute + own.rest for own in times.workers]
    assert of(modelled, "computing") == pytest.approx(sum(computing) / 2) and computing[0] != computing[1]
    assert of(modelled, "communicating") == pytest.approx(sum(flights) / 2) and min(flights) > 0
    assert of(modelled, "waiting") == slowest.exposed + slowest.idle > 0
    assert of(modelled, "waiting_percent") == pytest.approx(
        100 * (slowest.exposed + slowest.idle) / slowest.epoch
    )
    # 2 ms of each worker's computing are equal.
    assert of(modelled, "imbalance") == pytest.approx(0.022 / 0.012)


def test_what_segments_take_of_a_modelled_epoch(modelled, times):
    slowest, named = max(zip(times.workers, times.named), key=lambda both: both[0].epoch)
    assert sum(named.values()) == pytest.approx(slowest.compute + slowest.rest)
    name, seconds = max(named.items(), key=lambda item: item[1])
    assert seconds > 0 and of(modelled, [name]) == pytest.approx(100 * seconds / slowest.epoch)
    assert of(modelled, [name, "nothing of that name"]) == of(modelled, [name])


def test_what_is_saved_over_what_is_spent_on_it(tmp_path):
    """Each seed is held against the same seed of the other row."""
    base, cached = (
        [Run(recorded(tmp_path / f"{name}{seed}", [[seed * slower, 0.02]] * 3)) for seed in (0.03, 0.05)]
        for name, slower in (("base", 2), ("cached", 1))
    )
    saved = measure_of({"saved": ["pack"], "of": "no cache", "words": WORDS})
    assert saved.reference == "no cache" and not saved.scored
    bases = saved.of_seeds(base)
    assert bases == [of(run, "epoch") for run in base] and bases[0] != bases[1]
    for run, before in zip(cached, bases):
        after = of(run, "epoch")
        spent = after * of(run, ["pack"]) / 100
        assert saved.value(run, before) == pytest.approx((before - after) / spent) and before > after
    nothing = measure_of({"saved": ["nothing of that name"], "of": "no cache", "words": WORDS})
    assert math.isnan(nothing.value(cached[0], bases[0]))


def test_a_changed_trace_is_replayed_anew(modelled, tmp_path):
    before = of(modelled, "compute")
    changed = Run(recorded(tmp_path / "run", [[0.03, 0.06]] * 3))
    assert of(changed, "compute") == pytest.approx(before + 0.02)


def test_a_twins_modelled_epoch_is_as_if_it_were_whole(modelled):
    modelled.keys = {**modelled.keys, "dataset.scale": 0.1}
    assert of(modelled, "compute", whole=True) == pytest.approx(10 * of(modelled, "compute"))
    # With batches of a fixed size the larger graph has as many more steps, sums of weights too.
    for what, factor in (("epoch", 10), ("compute", 10), ("waiting_percent", 1)):
        assert of(modelled, what, whole="steps") == pytest.approx(factor * of(modelled, what))
    with pytest.raises(InputError, match='measure.whole="stepss" is not known'):
        of(modelled, "epoch", whole="stepss")


SLOW_LINK = "cluster.between.gbytes_per_s=0.1 cluster.between.latency_us=0"


@pytest.fixture
def four(tmp_path) -> Run:
    return Run(recorded(tmp_path / "run", [[0.01] * 4] * 2))


def test_half_of_the_workers_are_on_each_host(four):
    words = f"cluster=cdfgnn {SLOW_LINK}"
    apart, half = (of(four, "waiting", words=f"{words} per_host={n}") for n in ("2", "WORKERS/2"))
    assert apart == half > of(four, "waiting", words=words)


def test_a_run_is_replayed_on_its_own_cluster(four):
    words = f"per_host=2 {SLOW_LINK}"
    four.keys = {key: value for key, value in four.keys.items() if key != "cluster.name"}
    with pytest.raises(InputError, match=r"has no cluster.name"):
        of(four, "waiting", words=f"cluster=OWN {words}")
    four.keys = {**four.keys, "cluster.name": "cdfgnn"}
    own, named = (of(four, "waiting", words=f"cluster={name} {words}") for name in ("OWN", "cdfgnn"))
    assert own == named > 0


def test_a_row_is_replayed_with_further_words_of_its_own(modelled):
    more = {"slowed": "straggler=1 slowdown=2"}
    as_it_is, slowed = (of(modelled, "epoch", row, more=more) for row in ("mine", "slowed"))
    named = of(modelled, "epoch", words=f"{WORDS} straggler=1 slowdown=2")
    assert as_it_is == of(modelled, "epoch") < slowed == named
    with pytest.raises(InputError, match="slowdwn"):
        of(modelled, "epoch", more={"slowed": "straggler=1 slowdwn=2"})


def test_seconds_that_a_paper_books_as_communication_are_taken_from_computing(modelled):
    for both in (("computing", "exposed"), ("compute", "waiting")):
        plain = [of(modelled, what) for what in both]
        booked = [of(modelled, what, booked=["forward"]) for what in both]
        assert sum(booked) == pytest.approx(sum(plain)) and booked[0] < plain[0]
    with pytest.raises(InputError, match="booked"):
        of(modelled, "epoch", booked=["forward"])


def test_modelled_seconds_to_a_score_are_as_many_epochs_as_modelled(tmp_path, monkeypatch):
    run = Run(traces.finished(tmp_path / "run", traces.config(epochs=5)))
    best = best_validation(run)
    monkeypatch.setattr(measure, "replayed", lambda run, what, words, whole, booked: 7.0 if whole else 3.0)
    asked = {"to": 1.0, "of": "mine"}
    epochs = measure_of({**asked, "in": "epochs"}).value(run, best)
    made = measure_of({**asked, "in": "modelled", "words": WORDS})
    assert (made.value(run, best), made.reference, made.scored) == (3 * epochs, "mine", True)
    whole = measure_of({**asked, "in": "modelled", "words": WORDS, "whole": True})
    assert whole.value(run, best) == 7 * epochs > 0
    assert math.isnan(made.value(run, 101.0)), "it never gets there"


@pytest.mark.parametrize("given, said", [
    ({"to": 1, "of": "a", "in": "epochs", "words": "cluster=cdfgnn"}, "in=epochs takes no words"),
    ({"to": 1, "of": "a", "in": "modelled"}, "in=modelled has no cluster: give words"),
    ({"to": 1, "of": "a", "in": "modelled", "words": "cluster=cdfgn"}, "did you mean"),
    ({"replayed": "epochs", "words": "cluster=cdfgnn"}, "did you mean"),
    ({"replayed": "epoch", "words": "cluster=cdfgn"}, "did you mean"),
    ({"replayed": "epoch", "words": "cluster=cdfgnn grown=0"}, "grown"),
    ({"replayed": "epoch"}, "give a column's key"),
])  # fmt: skip
def test_a_modelled_measure_that_cannot_be_is_refused(given, said):
    with pytest.raises(InputError, match=said):
        measure_of(given)


def test_graphs_with_other_seeds_are_one_sentence(monkeypatch):
    monkeypatch.setattr(evaluate, "graph_name", str)
    first, second = (SimpleNamespace(seed=seed, trace="cora") for seed in (1, 2))
    other, third = (SimpleNamespace(seed=seed, trace="dblp") for seed in (1, 3))
    evaluate._same_seeds({"a": [[first, second], [first, second]], "b": [[first, second]] * 2})
    said = "a on dblp has the seeds [1, 3] where a on cora has [1, 2]: give all the same"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        evaluate._same_seeds({"a": [[first, second], [other, third]]})


def test_the_largest_size_whose_runs_are_there_decides_and_a_missing_one_is_named(tmp_path):
    sizes = {
        "smoke": Size(["cora"], "epochs=1 seed=1,2", 1),
        "small": Size(["cora", "dblp"], "epochs=2 seed=1,2", 1),
    }
    plan = experiment.Experiment("mine", "t", {"a": "system=a"}, sizes)
    claim = Claim("sancus_claim_accuracy", "", "mb_epoch", ["a"], direction="above", graph="cora")
    folders = {}
    for size, sent in (("smoke", 10), ("small", 20)):
        (sweep,) = plan.sweeps("a", size, "cora")
        epochs = {"sent": {(0, "forward", "halo", 1): (1, sent * 10**6)}}
        for seed in (1, 2):
            composed = traces.config(gpus=1, epochs=1, seed=seed)
            path = scored_run(tmp_path / f"{size}{seed}", [None], composed, epochs=epochs)
            folders.setdefault(sweep, []).append(path)
    none = [tmp_path / "none"]
    both = evaluate._Runs(plan, lambda sweep: folders.get(sweep, none)).decide(claim)
    assert (both.size, both.ours.mean) == ("small", 20)
    (small,) = plan.sweeps("a", "small", "cora")
    del folders[small]
    one = evaluate._Runs(plan, lambda sweep: folders.get(sweep, none)).decide(claim)
    assert (one.size, one.ours.mean) == ("smoke", 10)
    elsewhere = Claim("sancus_claim_accuracy", "", "mb_epoch", ["a"], direction="above", graph="dblp")
    missing = evaluate._Runs(plan, lambda sweep: none).decide(elsewhere)
    assert missing.verdict == evaluate.Verdict("not run", "halobench figures mine --size small")


def test_a_run_that_diverged_loses_its_score_and_not_its_bytes(tmp_path):
    plan = experiment.Experiment("mine", "t", {"a": "system=a"}, {"small": Size(["cora"], "seed=1,2", 1)})
    paths = [
        scored_run(tmp_path / str(seed), [None], traces.config(gpus=1, epochs=1, seed=seed), [math.nan])
        for seed in (1, 2)
    ]
    runs = evaluate._Runs(plan, lambda sweep: paths)
    common = {"entry": "sancus_claim_accuracy", "says": "", "rows": ["a"], "direction": "above"}
    assert runs.decide(Claim(measure="mb_epoch", **common)).ours.mean > 0
    assert runs.decide(Claim(measure="test_acc_percent", **common)).measured.lost == "a diverged"


def test_a_difference_of_scores_is_as_wide_as_the_least_step_between_them():
    rows = [np.array([[80.0, 81.0, 84.0]]), np.array([[79.0, 80.0, 83.0]])]
    assert evaluate._no_finer(Estimate(1.0, 0.0, 3), rows).half == pytest.approx(1.0)
