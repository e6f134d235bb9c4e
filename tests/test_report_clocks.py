"""Which clock tables and pictures show, and what they say of a machine that did not suffice."""

import pytest

from harness.results import files, summary
from harness.results.reader import Trace
from harness.results.report import columns, plot
from tests import traces
from tests.reported import rows, run_markdown, section_of


def test_where_workers_outnumber_cores_cpu_seconds_are_shown_apart(tmp_path, capsys):
    crowded = traces.finished(tmp_path / "crowded", traces.config(), cores=1)
    traces.finished(tmp_path / "roomy", traces.config(), cores=2)
    s = Trace(crowded).summary
    assert s["clock"] == "cpu" and any("2 workers outnumber 1 cores" in note for note in s["notes"])
    text = run_markdown(capsys, tmp_path)
    first, second = text.split("\n\n**")
    cpu, wall = (first, second) if "1 cores" in first else (second, first)
    assert "epoch CPU s" in cpu and "epoch s" not in cpu and "workers outnumber cores" in cpu
    assert "epoch s" in wall and not any(
        f"{part} CPU s" in wall for part in ("epoch", "compute", "comm", "rest")
    )
    assert rows(cpu)[0]["epoch CPU s"] == "0.4300"
    figure = plot.breakdown(section_of(crowded), ["x"])
    assert "CPU s (workers outnumber cores)" in figure.axes[0].get_xlabel()


def test_a_machine_busy_with_something_else_is_told(tmp_path, capsys):
    run, made = traces.prepare(tmp_path, traces.config(gpus=1)), [traces.epoch(number) for number in range(3)]
    for each in made:
        each.spans[0].cpu = 0.3  # of 0.5 s
    s = summary.summarise(traces.write(run, made))
    assert s["core_share"] == pytest.approx(0.6) and any("had a core for 60 %" in note for note in s["notes"])
    assert "In 1 run other programs took a share of the cores: its wall time is too long" in run_markdown(
        capsys, run
    )
    assert "core" not in "".join(summary.summarise(traces.finished(tmp_path / "alone"))["notes"])


def test_on_a_gpu_the_wall_clock_stands(tmp_path):
    run = traces.prepare(tmp_path, traces.config(device="auto"), cores=1)
    files.write_json_atomic(run / "environment.json", {**traces.ENVIRONMENT, "cores": 1, "gpus": ["X"]})
    traces.stream(run, range(2))
    s = summary.summarise(run)
    assert s["clock"] == "wall" and any("2 workers shared 1 GPU" in note for note in s["notes"])


@pytest.mark.parametrize("told, sampled", [(0.02, 0.02), (7.0, 0.05)])
def test_cpu_of_threads_that_sample_beside_the_training_is_no_communication(tmp_path, told, sampled):
    """It stands with the rest; what was sampled before the epoch began is not in the epoch's seconds."""
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    metrics = {(-1, "sampler_s"): told}
    made = [traces.epoch(number, transport_cpu=0.05, metrics=metrics) for number in range(3)]
    s = summary.summarise(traces.write(run, made))
    cpu = s["cpu_slowest"]
    assert (cpu["sampler_s"], cpu["other_threads_s"]) == pytest.approx((sampled, 0.05 - sampled))
    assert columns.ALL["comm_cpu_s"].value(s) == pytest.approx(0.05 - sampled)
    assert columns.ALL["rest_cpu_s"].value(s) == pytest.approx(0.1 + sampled)
