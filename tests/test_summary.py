"""What a run's summary tells: which epochs are in its means, what it notes, and which epoch is the best."""

import math

import pytest

from harness.results import files, summary
from tests import traces


def test_an_epoch_that_not_all_workers_have_written_is_in_no_mean(tmp_path):
    run = traces.prepare(tmp_path)
    for worker, many, long in ((0, 4, 0.5), (1, 3, 2.0)):
        made = [traces.epoch(n, worker=worker, segments=[("compute", "forward", long)]) for n in range(many)]
        traces.write(run, made, worker=worker)
    s = summary.summarise(run)
    assert (s["epoch_s"], s["bytes_epoch"]["layer_0"]) == pytest.approx((2.0, 128.0))


def test_a_run_that_went_on_says_that_it_began_anew(tmp_path):
    run = traces.finished(tmp_path)
    assert not any("went on" in note for note in summary.summarise(run)["notes"])
    traces.resolve(run, 3)
    said = "went on in epoch 4, which compiles and allocates anew and is in the means"
    assert said in summary.summarise(run)["notes"]


def test_the_median_of_epochs_is_not_their_mean(tmp_path):
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    made = [
        traces.epoch(number, segments=[("compute", "forward", long)])
        for number, long in enumerate((9.0, 1.0, 1.0, 4.0))
    ]
    s = summary.summarise(traces.write(run, made))
    assert (s["epoch_s"], s["epoch_median_s"]) == pytest.approx((2.0, 1.0))


def test_what_the_first_epoch_lacked_of_its_core_is_not_told(tmp_path):
    run, made = traces.prepare(tmp_path, traces.config(gpus=1)), [traces.epoch(number) for number in range(3)]
    made[0].spans[0].cpu = 0.0
    s = summary.summarise(traces.write(run, made))
    assert s["core_share"] == pytest.approx(1.0) and "core" not in "".join(s["notes"])


def test_neither_a_gpu_nor_a_crowd_is_another_program(tmp_path):
    for name, cores, gpus in (("gpu", 4, ["X", "Y"]), ("crowded", 1, [])):
        run = traces.prepare(tmp_path / name, traces.config(device="auto" if gpus else "cpu"), cores=cores)
        files.write_json_atomic(
            run / "environment.json", {**traces.ENVIRONMENT, "cores": cores, "gpus": gpus}
        )
        for worker in range(2):
            made = [traces.epoch(number, worker=worker) for number in range(3)]
            for each in made:
                each.spans[0].cpu = 0.3  # of 0.5 s
            traces.write(run, made, worker=worker)
        notes = "".join(summary.summarise(run)["notes"])
        assert "other programs" not in notes and "shared" not in notes


def test_a_run_diverged_at_the_first_of_its_epochs_that_did(tmp_path):
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    made = [traces.epoch(number) for number in range(5)]
    s = summary.summarise(traces.write(run, made, loss=[1.0, 0.5, math.nan, math.inf, math.nan]))
    assert s["diverged"] == 2 and any("from epoch 3 on" in note for note in s["notes"])


def test_of_equal_validation_scores_the_first_is_the_best(tmp_path):
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    scores = [traces.scored(0.5, val, test) for val, test in ((0.4, 0.1), (0.7, 0.2), (0.6, 0.3), (0.7, 0.4))]
    best = summary.summarise(traces.write(run, [traces.epoch(number) for number in range(4)], scores=scores))[
        "best"
    ]
    assert (best["epoch"], best["test"]) == (1, 0.2)
