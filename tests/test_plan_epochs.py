"""How many epochs a plan looks at: until its system repeats itself."""

import numpy as np
import pandas as pd
import pytest

from harness.model.plan import plan as plans
from harness.model.plan import sized
from harness.model.plan.sized import dry_epochs
from harness.model.plan.words import parse
from tests.test_plan import APART, SMALL, planned


@pytest.mark.parametrize(
    "words, epochs",
    [
        ("vanilla", 21),
        ("sylvie system.period=0", 21),
        ("digest system.interval=50", 51),
        ("digest system.interval=7", 22),
        ("digest system.interval=50 epochs=30", 30),
        ("skipg system.bound=30", 32),
        ("varco", 21),
        ("varco system.slope=2", 31),
        ("varco system.slope=0.5", 60),
        ("varco system.slope=0", 21),
        ("pscgcn", 25),
        ("pscgcn system.refresh=25 system.tau=2", 52),
        ("pscgcn system.rate=1 system.tau=0 system.refresh=40", 21),
        ("sancus system.bound=40", 42),
        ("sancus system.bound=1e300", 60),
        ("sanqus system.staleness=variation_gap system.warmup=25", 26),
    ],
)
def test_a_dry_run_goes_on_until_its_system_repeats_itself(words, epochs):
    given = parse(["dataset=cora", "epochs=60", *APART, *f"system={words}".split()])
    counts = dry_epochs(given.runs[0][1])
    assert len(counts) == epochs and counts.sum() == given.runs[0][1].settings.epochs


PAPER = "sancus system.staleness=epoch_adaptive system.phase=paper system.bound=3"


@pytest.mark.parametrize("words", ["skipg system.bound=24", "varco", "pscgcn system.tau=2", PAPER])
def test_bytes_are_those_of_a_dry_run_of_every_epoch(words, tmp_path, monkeypatch):
    given = parse([*SMALL, "epochs=60", f"cache={tmp_path}", *APART, *f"system={words}".split()])
    found = plans.plan(given.runs[0][1], given.cluster).bytes_by_purpose()
    for module in (plans, sized):
        monkeypatch.setattr(module, "dry_epochs", lambda run: np.ones(run.settings.epochs, int))
    pd.testing.assert_frame_equal(found, plans.plan(given.runs[0][1], given.cluster).bytes_by_purpose())


def test_what_is_done_less_often_than_every_twentieth_epoch_is_planned(tmp_path, capsys):
    words = [*SMALL, "epochs=60", f"cache={tmp_path}", *APART]
    rows = planned(["system=digest", "system.interval=23", *words], tmp_path)
    assert "epochs 25 to 60 are taken to repeat those before" in " ".join(capsys.readouterr().out.split())
    assert {row["purpose"] for row in rows} == {"pull", "push", "weights"} and rows[0]["exact"] == "True"
    gap = ["system.staleness=variation_gap", "system.warmup=25"]
    (row, *_) = planned(["system=sancus", *gap, *words], tmp_path)
    assert row["exact"] == "False", "what is sent after the 25th epoch depends on values"
