"""How many epochs a plan looks at: until its system repeats itself."""

import pytest

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
        ("varco", 60),
        ("varco system.slope=0", 21),
        ("pscgcn", 60),
        ("sancus system.bound=40", 42),
        ("sanqus system.staleness=variation_gap system.warmup=25", 26),
    ],
)
def test_a_dry_run_goes_on_until_its_system_repeats_itself(words, epochs):
    given = parse(["dataset=cora", "epochs=60", *APART, *f"system={words}".split()])
    assert dry_epochs(given.runs[0][1]) == epochs


def test_what_is_done_less_often_than_every_twentieth_epoch_is_planned(tmp_path, capsys):
    words = [*SMALL, "epochs=60", f"cache={tmp_path}", *APART]
    rows = planned(["system=digest", "system.interval=23", *words], tmp_path)
    assert "the mean of epochs 2 to 24 of 60" in " ".join(capsys.readouterr().out.split())
    assert {row["purpose"] for row in rows} == {"pull", "push", "weights"} and rows[0]["exact"] == "True"
    gap = ["system.staleness=variation_gap", "system.warmup=25"]
    (row, *_) = planned(["system=sancus", *gap, *words], tmp_path)
    assert row["exact"] == "False", "what is sent after the 25th epoch depends on values"
