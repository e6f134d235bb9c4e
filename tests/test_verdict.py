"""The rule that decides what a paper says, on numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.papers.claims import evaluate, table
from harness.papers.claims.verdict import (
    CAUSES,
    DIRECTION,
    FAILS,
    HOLDS,
    NO_EFFECT,
    SEEDS,
    STRONGER,
    UNKNOWN,
    WEAKER,
    Verdict,
    as_well,
    judge,
    judge_order,
    signed,
)
from harness.results.report.estimate import Estimate
from tests import experiments

FLOATS = st.floats(-100, 100)


@pytest.mark.parametrize(
    "ours,published,direction,word",
    [
        ((30, 2), 31, "above", HOLDS),  # within 10 % of our mean
        ((30, 8), 36, "above", HOLDS),  # the interval holds it, and is no wider than half the effect
        ((30, 12), 36, "above", DIRECTION),  # it is wider
        ((30, 2), None, "above", DIRECTION),
        ((30, 2), None, "below", FAILS),
        ((30, 2), 60, "above", DIRECTION),  # exactly half
        ((29, 2), 60, "above", WEAKER),
        ((30, 2), 14, "above", STRONGER),
        ((12, 2), 60, "above", NO_EFFECT),  # told apart, and less than a quarter
        ((-14, 0.5), 60, "above", NO_EFFECT),
        ((-14, 2), 60, "above", FAILS),
        ((3, 15), 60, "above", UNKNOWN),
        ((30, None), 31, "above", UNKNOWN),  # one seed has no interval
        ((33, 2), (35, 74), "above", HOLDS),  # the interval meets the range
        ((58, 30), (35, 74), "above", HOLDS),  # in the range, and told apart from none
        ((0, 0), 60, "above", NO_EFFECT),
        ((2e-16, 1e-16), None, "above", NO_EFFECT),  # rounding is no difference
        ((float("inf"), 1), 60, "above", UNKNOWN),
        ((float("nan"), None), 3, "above", UNKNOWN),
    ],
)
def test_the_rule(ours, published, direction, word):
    assert judge(Estimate(*ours, 3), published, direction).word == word


@pytest.mark.parametrize(
    "ours,published,word,share",
    [
        ((1.014, 0.001), 2.81, NO_EFFECT, 0.013),  # CaPGNN over Vanilla on x4 as once modelled
        ((1.284, 0.02), 7.774, NO_EFFECT, 0.122),
        ((2.102, 0.07), 2.552, DIRECTION, 0.793),
        ((0.59, 0.006), 0.108, NO_EFFECT, 0.237),
        ((0.55, 0.006), 0.108, WEAKER, 0.269),
        ((5.187, 0.6), 12.83, DIRECTION, 0.645),
        ((9.04, 1.7), 2.697, STRONGER, 2.219),
    ],
)
def test_a_ratio_s_share_is_of_logarithms(ours, published, word, share):
    side = "above" if published > 1 else "below"
    found = judge(Estimate(*ours, 2), published, side, neutral=1.0, logarithmic=True)
    assert found.word == word and found.share.value == pytest.approx(share, abs=1e-3)
    assert found.share.low < found.share.value < found.share.high


def test_a_share_has_the_ends_of_its_interval():
    found = judge(Estimate(5.453, 1, 3), 24.76, "above")
    assert found.word == WEAKER
    assert (found.share.low, found.share.high) == pytest.approx((4.453 / 24.76, 6.453 / 24.76))
    assert format(found.share, ".2f") == "0.22 [0.18, 0.26]"
    assert judge(Estimate(40, 2, 3), (35, 74), "above").share.value == 1


@pytest.mark.parametrize(
    "ours,published,tolerance,word",
    [
        ((-2.27, 3.09), 0.20, 0.5, UNKNOWN),  # PSC-GCN on Reddit: overlap alone is no equivalence
        ((-0.18, 0.2), 0, 0.5, HOLDS),
        ((-0.18, 0.4), 0, 0.5, UNKNOWN),
        ((-2.26, 0.18), 1.9, 0.5, FAILS),
        ((61.0, 1.1), (66, 81), None, FAILS),  # a range is its ends, without slack
        ((73.9, 4.96), (66, 81), None, HOLDS),
        ((67.0, 4.96), (66, 81), None, UNKNOWN),
        ((0.3, 0.7), (-0.5, math.inf), None, HOLDS),  # a range with one end alone
        ((-1.3, 0.7), (-0.5, math.inf), None, FAILS),
        ((1.004, 1e-4), (0, 1), 0.01, HOLDS),  # a slack with its reason
        ((30, 2), 60, None, FAILS),
        ((30, 9), 31, None, UNKNOWN),  # a wide interval
    ],
)
def test_without_a_direction_the_whole_interval_lies_within_the_tolerance(ours, published, tolerance, word):
    assert judge(Estimate(*ours, 3), published, None, tolerance=tolerance).word == word


def test_a_tolerance_never_overrules_the_interval():
    """JACA on Yelp: half a point is more than the printed loss of 0.34."""
    assert judge(Estimate(0.005, 0.125, 3), -0.34, "below", tolerance=0.5).word == UNKNOWN
    assert judge(Estimate(-0.3, 0.125, 3), -0.34, "below", tolerance=0.5).word == HOLDS
    assert judge(Estimate(0.3, 0.125, 3), -0.34, "below", tolerance=0.5).word == FAILS


def test_a_value_that_no_seed_changes_is_one_sample_and_says_so():
    found = judge(Estimate(15.31, 0.0, 3), 45.28, "above")
    assert (found.word, found.why) == (WEAKER, "deterministic")
    assert (found.share.low, found.share.high) == (None, None)
    assert judge(Estimate(0.5, 0.0, 3), 0.5, None).why == "deterministic"
    assert "deterministic" not in judge(Estimate(0.5, 0.1, 3), 0.5, None).why
    assert judge_order([Estimate(1, 0.0, 3), Estimate(2, 0.0, 3)]) == Verdict(DIRECTION, "deterministic")


def test_what_lies_in_a_range_from_no_difference_on_is_an_effect():
    for published, direction in (((-2.0, 0.0), "below"), ((0.0, 35.0), "above")):
        mean = sum(published) / 10
        assert judge(Estimate(mean, abs(mean) / 5, 3), published, direction).word == HOLDS
        assert judge(Estimate(mean, 20 * abs(mean), 3), published, direction).word == UNKNOWN


def test_what_is_rounding_beside_its_interval_is_written_as_0():
    assert f"{Estimate(-4.737e-15, 0.08978, 3):.4g}" == "0 ± 0.08978"
    assert f"{Estimate(-4.737e-15, 1e-14, 3):.2g}" == "-4.7e-15 ± 1e-14"


def test_a_ratio_that_rounds_to_1_is_no_difference():
    assert judge(Estimate(1 + 2.3e-16, 0.0, 3), None, "above", 1.0, None, True).word == NO_EFFECT


@pytest.mark.parametrize("cause", ["", *CAUSES])
def test_a_miss_whose_cause_is_not_the_paper_cannot_be_told(cause):
    miss = signed(judge(Estimate(-30, 2, 3), 60, "above"), cause, "because of this")
    assert miss.word == (FAILS if cause == "paper" else UNKNOWN) and miss.cause == cause
    assert "because of this" in miss.why
    weak = signed(judge(Estimate(20, 2, 3), 60, "above"), cause)
    assert (weak.word, weak.cause) == (WEAKER, cause)
    assert signed(Verdict(HOLDS), cause).cause == "" == signed(Verdict(DIRECTION), cause).cause
    assert signed(judge(Estimate(3, 15, 3), 60, "above"), cause).cause == SEEDS


def test_verdicts_are_counted_by_cause_and_a_measurement_once():
    parts = [
        experiments.result("sancus_table5", "a", Verdict(HOLDS)),
        experiments.result("sancus_table5", "b", Verdict(UNKNOWN, cause="twin")),
        experiments.result("sancus_table5", "c", Verdict(UNKNOWN, cause="seeds")),
        experiments.result("sancus_fig21", "a", Verdict(HOLDS), again="sancus_table5"),
        experiments.result("sancus_fig21", "d", Verdict(evaluate.COMPARED)),
    ]
    said = table.counts(parts)
    assert said[2] == "3 parts of tables: 2 cannot tell (twin 1, seeds 1), 1 holds."
    assert said[3] == "Shown again under another entry, and not counted again: 1."


@given(FLOATS, st.floats(0, 50), FLOATS)
def test_turned_round_everything_is_the_same(mean, half, said):
    ours, turned = Estimate(mean, half, 3), Estimate(-mean, half, 3)
    assert judge(ours, said, "above") == judge(turned, -said, "below")


@given(st.floats(0.01, 100), st.floats(0, 0.5), st.floats(0.01, 100))
def test_a_ratio_and_its_inverse_get_one_word(mean, share, said):
    """Of intervals that lie alike on the logarithmic scale; the tolerance is of our mean."""
    low, high = mean * math.exp(-share), mean * math.exp(share)
    inverse = Estimate((1 / low + 1 / high) / 2, (1 / low - 1 / high) / 2, 3)
    ours = Estimate((low + high) / 2, (high - low) / 2, 3)
    words = [
        judge(each, value, side, 1.0, 1e-9, logarithmic=True).word
        for each, value, side in ((ours, said, "above"), (inverse, 1 / said, "below"))
    ]
    assert words[0] == words[1] or {STRONGER, WEAKER, DIRECTION} >= set(words)


@given(FLOATS, st.floats(0.01, 50))
def test_one_direction_at_most_holds(mean, half):
    words = [judge(Estimate(mean, half, 3), None, side).word for side in ("above", "below")]
    assert set(words) in ({DIRECTION, FAILS}, {UNKNOWN})


@given(FLOATS, st.floats(0, 10))
def test_what_is_published_and_found_holds_unless_the_interval_is_wide(mean, half):
    ours = Estimate(mean, half, 3)
    assert judge(ours, mean).word == (HOLDS if half <= 0.1 * abs(mean) else UNKNOWN)
    if mean > 0:
        assert judge(ours, mean, "above").word == (HOLDS if half < mean or half <= mean / 4 else UNKNOWN)


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


def test_of_a_range_the_least_effect_that_is_printed_counts():
    assert judge(Estimate(15, 1, 3), (35, 74), "above").word == WEAKER
    assert judge(Estimate(8, 0.5, 3), (35, 74), "above").word == NO_EFFECT
