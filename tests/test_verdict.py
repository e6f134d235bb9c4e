"""The rule that decides what a paper says, on numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.claims import evaluate, table
from harness.claims.verdict import (
    DIRECTION,
    FAILS,
    HOLDS,
    UNKNOWN,
    WIDE,
    as_well,
    judge,
    judge_order,
)
from harness.report.groups import Estimate

FLOATS = st.floats(-100, 100)


@pytest.mark.parametrize(
    "ours,published,direction,word",
    [
        ((30, 2), 31, "above", HOLDS),  # in the interval
        ((30, None), 32, "above", HOLDS),  # within 10 % of our mean, of one seed too
        ((30, 2), 60, "above", DIRECTION),
        ((30, 2), None, "above", DIRECTION),
        ((30, 2), None, "below", FAILS),
        ((30, 2), 60, None, FAILS),
        ((3, 5), 60, "above", UNKNOWN),
        ((30, None), 60, "above", UNKNOWN),
        ((30, 2), (35, 74), "above", DIRECTION),
        ((33, 2), (35, 74), "above", HOLDS),  # the interval meets the range
        ((0, 0), 60, "above", FAILS),  # no seed shows a difference
        ((0, 0), 60, "below", FAILS),
        ((0, None), 60, "above", UNKNOWN),
        ((2e-16, 1e-16), 60, "above", FAILS),  # rounding is no difference
        ((float("inf"), 1), 60, "above", UNKNOWN),
        ((float("nan"), None), 3, "above", UNKNOWN),
    ],
)
def test_the_rule(ours, published, direction, word):
    assert judge(Estimate(*ours, 3), published, direction).word == word


@pytest.mark.parametrize(
    "ours,published,direction,why",
    [
        ((3, 5), 6, "above", WIDE),
        ((3, 5), (6, 9), "above", WIDE),
        ((3, 5), -1, "above", WIDE),  # on the other side than our mean
        ((3, 5), 3.2, "above", ""),  # within 10 % of our mean
        ((3, 2), 4.5, "above", ""),  # an interval without 0
        ((3, 5), 6, None, ""),  # the paper has no direction
    ],
)
def test_what_holds_by_an_interval_that_holds_no_difference_says_so(ours, published, direction, why):
    verdict = judge(Estimate(*ours, 3), published, direction)
    assert (verdict.word, verdict.why) == (HOLDS, why)
    kept = evaluate.Result("sancus_table5", "x", "a part", verdict)
    apart = " (1 of them by intervals that hold no difference too)" if why else ""
    assert table.counts([kept, kept])[2] == f"2 parts: 2 holds{apart.replace('1', '2')}."


@given(FLOATS, st.floats(0, 50), FLOATS)
def test_turned_round_everything_is_the_same(mean, half, said):
    ours, turned = Estimate(mean, half, 3), Estimate(-mean, half, 3)
    assert judge(ours, said, "above") == judge(turned, -said, "below")


@given(FLOATS, st.floats(0.01, 50))
def test_one_direction_at_most_holds(mean, half):
    words = [judge(Estimate(mean, half, 3), None, side).word for side in ("above", "below")]
    assert set(words) in ({DIRECTION, FAILS}, {UNKNOWN})


@given(FLOATS, st.floats(0, 10))
def test_what_is_published_and_found_holds(mean, half):
    assert judge(Estimate(mean, half, 3), mean).word == HOLDS


def test_an_order_holds_where_every_step_does():
    up, down, flat = Estimate(3, 1, 3), Estimate(-3, 1, 3), Estimate(0.1, 1, 3)
    assert judge_order([up, up]).word == DIRECTION
    assert judge_order([up, down]).word == FAILS
    assert judge_order([up, flat]).word == UNKNOWN
    assert judge_order([up, Estimate(0, 0, 3)]).why == "step 2 of 2 shows no difference in any seed"
    assert judge_order([down, up]).why == "step 1 of 2 goes the other way"


def test_a_control_does_as_well_unless_the_row_is_surely_ahead():
    assert as_well([80, 81, 82], [80.1, 81.2, 81.9])
    assert as_well([90, 91, 92], [80, 81, 82])
    assert not as_well([60, 61, 62], [80, 81, 82])
