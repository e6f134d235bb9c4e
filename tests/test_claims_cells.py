"""A published table's cells: one claim of a file stands for all of them, and a reader sees them by series."""

import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.papers.claims import evaluate, experiment, picture, published, reference, table
from harness.papers.claims.claim import Claim
from harness.papers.claims.verdict import FAILS, HOLDS
from harness.results.report.estimate import Estimate
from tests import experiments, traces

TABLE = published.entry("capgnn_table7").published["values"]
GRAPHS = {"corafull": "Cl", "reddit": "Rt"}
CLAIM = {
    "entry": "capgnn_table7",
    "says": "{graph}, {group}: an epoch of {row} over CaPGNN's",
    "each": {"graph": GRAPHS, "row": ["Vanilla", "AdaQP"], "group": ["x2", "x6"]},
    "measure": "epoch_s",
    "rows": ["{row} {group}", "CaPGNN {group}"],
    "compare": "ratio",
    "printed": ["GCN/{graph}/{row}/{group}/0", "GCN/{graph}/CaPGNN/{group}/0"],
    "graph": "{graph}",
}
FILE = {
    "title": "t",
    "rows": {"Vanilla": "system=vanilla", "AdaQP": "system=adaqp", "CaPGNN": "system=capgnn"},
    "by": {"x2": "gpus=2", "x6": "gpus=6"},
    "sizes": {"small": {"graphs": ["twin/corafull", "twin/reddit"], "runs": "seed=1,2", "minutes": 1}},
}


def made(tmp_path, **keys) -> experiment.Experiment:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(FILE | {"claims": [CLAIM | keys]}, sort_keys=False))
    return experiment.load(tmp_path)["mine"]


def test_the_examples_of_the_page_can_be_used(tmp_path):
    page = Path(__file__).parent.parent / "docs" / "howto" / "claims.md"
    first, *others = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S)
    (tmp_path / "mine.yaml").write_text(first)
    assert experiment.load(tmp_path)["mine"].claims
    (cells,) = (part for part in others if "printed:" in part)
    sizes = {"small": {"graphs": ["twin/reddit", "twin/yelp"], "runs": "seed=1,2", "minutes": 1}}
    given = {"title": "t", "sizes": sizes} | yaml.safe_load(cells)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    assert len(experiment.load(tmp_path)["mine"].claims) == 8, "two graphs, two rows, two groups"


def test_every_row_is_run_with_each_of_by(tmp_path):
    plan = made(tmp_path)
    assert list(plan.rows) == [f"{row} {by}" for row in FILE["rows"] for by in FILE["by"]]
    assert plan.sweeps("AdaQP x6", "small")[1] == "system=adaqp gpus=6 dataset=twin/reddit seed=1,2"


def test_a_claim_stands_for_the_cells_that_print_numbers(tmp_path):
    """AdaQP ran into their limit of time on CoraFull, and on Reddit with six GPUs."""
    claims = made(tmp_path).claims
    assert [(claim.graph, *claim.rows) for claim in claims] == [
        ("corafull", "Vanilla x2", "CaPGNN x2"),
        ("corafull", "Vanilla x6", "CaPGNN x6"),
        ("reddit", "Vanilla x2", "CaPGNN x2"),
        ("reddit", "Vanilla x6", "CaPGNN x6"),
        ("reddit", "AdaQP x2", "CaPGNN x2"),
    ]
    of_reddit = TABLE["GCN"]["Rt"]
    assert claims[4].published == pytest.approx(
        of_reddit["AdaQP"]["x2"][0] / of_reddit["CaPGNN"]["x2"][0], 1e-3
    )
    assert claims[4].says == "reddit, x2: an epoch of AdaQP over CaPGNN's"
    assert [claim.direction for claim in claims] == ["above", None, *["above"] * 3], "22.74 s over 22.22"
    assert (claims[0].series, claims[0].step) == ("corafull, {}: an epoch of Vanilla over CaPGNN's", "x2")


@given(st.sampled_from(["ratio", "less_percent", "difference"]), st.booleans())
def test_the_side_is_the_one_on_which_the_printed_numbers_lie(compare, turned):
    """Turned round, a claim has the other side."""
    claim = Claim("capgnn_table7", "{group}", "epoch_s", ["a", "b"], compare)
    places = ["GCN/Rt/Vanilla/{group}/0", "GCN/Rt/CaPGNN/{group}/0"]
    asked = (places[::-1] if turned else places, None, "claims[0]")
    cells = experiment.cells.expanded(claim, {"group": list(TABLE["GCN"]["Rt"]["Vanilla"])}, *asked)
    assert len(cells) == 7
    for cell in cells:
        a, b = (TABLE["GCN"]["Rt"][row][cell.step][0] for row in ("Vanilla", "CaPGNN"))
        a, b = (b, a) if turned else (a, b)
        values = {"ratio": a / b, "less_percent": 100 * (1 - a / b), "difference": a - b}
        assert cell.published == pytest.approx(values[compare], 1e-3)
        larger = (a < b) if compare == "less_percent" else (a > b)
        assert cell.direction == ("above" if larger else "below")


def test_on_neither_side_where_no_difference_would_hold():
    """Of 1.05 a tenth holds 1; of 2 it does not; a tolerance of its own counts instead."""
    claim = Claim("capgnn_table8", "{form}", "epoch_s", ["a", "b"], "difference")
    places = ["GCN/{form}/Rt/2", "GCN/Vanilla/Rt/2"]  # 93.76 and 93.83 where Vanilla has 95.3
    forms = {"form": {"JACA": "+JACA", "RAPA": "+RAPA"}}

    def sides(**keys) -> list[str | None]:
        made = experiment.cells.expanded(replace(claim, **keys), forms, places, None, "claims[0]")
        return [cell.direction for cell in made]

    assert sides() == ["below", "below"]
    assert sides(tolerance=1.5, reason="r") == ["below", None]
    assert sides(compare="ratio") == [None, None]


def test_a_step_goes_by_our_name_and_texts_of_a_measure_are_filled():
    claim = Claim(
        "capgnn_table8", "{form}", {"replayed": "epoch", "words": "x={form}"}, ["{form}", "b"], "ratio"
    )
    places = ["GCN/{form}/Rt/0", "GCN/Vanilla/Rt/0"]
    (cell,) = experiment.cells.expanded(claim, {"form": {"JACA": "+JACA"}}, places, None, "claims[0]")
    assert (cell.step, cell.series, cell.rows) == ("JACA", "{}", ["JACA", "b"])
    assert cell.measure == {"replayed": "epoch", "words": "x=JACA"}


def test_without_printed_numbers_each_value_may_bring_further_names(tmp_path):
    """Text, numbers that are published, and words of a measure follow the value that they belong to."""
    rows = {"AdaQP": {"percent": 12.5, "why": ""}, "Vanilla": {"percent": -3, "why": "seeds"}}
    claims = made(
        tmp_path,
        each={"group": {"x2": {"workers": 2}, "x6": {"workers": 6}}, "row": rows},
        without=[{"group": "x6", "row": "AdaQP"}],
        says="{row} on {workers} workers",
        rows=["{row} {group}", "CaPGNN {group}"],
        compare="less_percent",
        printed=None,
        published="{percent}",
        cause="{why}",
        graph="reddit",
    ).claims
    assert [(claim.says, claim.rows[0], claim.published, claim.cause) for claim in claims] == [
        ("AdaQP on 2 workers", "AdaQP x2", 12.5, ""),
        ("Vanilla on 2 workers", "Vanilla x2", -3, "seeds"),
        ("Vanilla on 6 workers", "Vanilla x6", -3, "seeds"),
    ]
    assert [(claim.series, claim.step) for claim in claims[:2]] == [
        ("{} on 2 workers", "AdaQP"),
        ("{} on 2 workers", "Vanilla"),
    ]


def test_four_numbers_make_a_ratio_of_ratios_and_whole_numbers_are_numbers():
    """PSC-GCN's Table III: columns 0, 1 of two rows; its iterations are whole numbers."""
    rows = ["a", "b", "c", "d"]
    claim = Claim("pscgcn_table3", "{i}", "epoch_s", rows, "ratio_of_ratios")
    places = [f"rows/{row}/{at}" for at in (1, 0) for row in ("Full-graph", "PipeGCN")]
    (cell,) = experiment.cells.expanded(claim, {"i": [1]}, places, None, "claims[0]")
    assert cell.published == pytest.approx((1517.53 / 1257.74) / (1.5974 / 1.1434), 1e-3)
    whole = Claim("cdfgnn_table3", "{i}", "epoch_s", ["a"], "value")
    (cell,) = experiment.cells.expanded(whole, {"i": [1]}, ["rows/0/2"], None, "claims[0]")
    assert cell.published == 2


def test_cells_can_be_left_out(tmp_path):
    claims = made(tmp_path, without=[{"graph": "reddit", "row": "AdaQP"}, {"group": "x6"}]).claims
    assert [(claim.graph, claim.step, claim.rows[0]) for claim in claims] == [
        ("corafull", "x2", "Vanilla x2"),
        ("reddit", "x2", "Vanilla x2"),
    ]


def test_a_verdict_is_kept_whatever_else_is_shown_beside_it(tmp_path):
    """Another graph among the cells, another order or another printed value changes no fingerprint; other
    rows do."""

    def fingerprints(**keys) -> dict[str, str]:
        plan = made(tmp_path, **keys)
        return {claim.says: reference.asked(plan, claim, "small") for claim in plan.claims}

    before = fingerprints()
    fewer = fingerprints(each=CLAIM["each"] | {"graph": {"reddit": "Rt"}})
    assert fewer.items() < before.items()
    assert fingerprints(each=dict(reversed(CLAIM["each"].items()))) == before
    assert fingerprints(printed=CLAIM["printed"][::-1]) == before
    turned = fingerprints(rows=CLAIM["rows"][::-1])
    assert turned.keys() == before.keys() and not set(turned.values()) & set(before.values())


@pytest.mark.parametrize(
    "keys,says",
    [
        ({"printed": ["GCN/{graph}/{row}/{group}/0"]}, "give a place for each of rows="),
        ({"printed": []}, "claims[0].printed=[]: give the place of each row's number, as [PLACE, ...]"),
        ({"printed": None}, "claims[0] has neither published nor direction: give one"),
        ({"printed": None, "published": "{row}"}, "claims[0].published=Vanilla is no number: give one"),
        (
            {"printed": None, "direction": "above", "without": [{"group": "x2"}, {"group": "x6"}]},
            "claims[0].without leaves no cell",
        ),
        ({"each": {"graph": {"a": {"row": "x"}}, "row": ["y"]}}, "claims[0].each gives row twice"),
        (
            {"each": {"row": {"a": {"n": 1}, "b": {"m": 1}}}},
            "claims[0].each.row: give each value the same names, as ['n']",
        ),
        ({"each": ["x2"]}, "claims[0].each=['x2']: give the values of each name, as {NAME: [VALUE, ...]}"),
        ({"each": {"group": 2}}, "claims[0].each.group=2: give [VALUE, ...]"),
        ({"says": "{}"}, 'claims[0]: "{}" is none of each; it has graph, row, group'),
        ({"says": "{graph.x}"}, 'claims[0]: "{graph.x}" is none of each'),
        ({"says": "{graph}: an epoch"}, "stands twice for capgnn_table7: say what differs"),
        ({"published": 2}, "claims[0] has published or direction beside printed, which makes both"),
        ({"series": "{}"}, "claims[0].series is made of each: leave it out"),
        ({"without": {"graph": "reddit"}}, "claims[0].without={'graph': 'reddit'}: give the cells"),
        ({"without": [{"graf": "reddit"}]}, 'claims[0].without="graf" is not known; did you mean "graph"?'),
        ({"without": [{"graph": "Rt"}]}, 'claims[0].without.graph="Rt" is not known'),
        ({"entry": "capgnn_tabel7"}, 'claims[0].entry="capgnn_tabel7" is not known'),
        ({"printed": ["GCN/Rt/Vanilla/x2/sec"] * 2}, "prints nothing there"),
        (
            {"compare": "descending"},
            "and compare as one of value, ratio, less_percent, difference, ratio_of_ratios",
        ),
        (
            {"printed": ["GCN/{graph}/Vanila/{group}/0", "GCN/Rt/CaPGNN/x2/0"]},
            "claims[0].printed=GCN/Cl/Vanila/x2/0: capgnn_table7 prints nothing there",
        ),
        ({"printed": ["GCN/Rt/Vanilla/x2/7"] * 2}, "prints nothing there"),
        ({"printed": ["GCN/Rt"] * 2}, "prints several numbers there, give one"),
        ({"printed": ["GCN/Rt/AdaQP/x6/0"] * 2}, "prints no number in any cell"),
        (
            {"entry": "capgnn_table1", "printed": ["rows/0/11", "rows/0/11"]},
            "claims[0].printed: capgnn_table1 prints 0 where",
        ),
        ({"rows": ["Vanilla {group}", "CapGNN {group}"]}, 'claims[0].rows="CapGNN x2" is not known'),
    ],
)
def test_what_no_table_has_is_refused_in_one_sentence(tmp_path, keys, says):
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        made(tmp_path, **keys)
    assert "mine.yaml: " in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "keys,says",
    [
        ({"by": ["x2"]}, "by=['x2']: give names, each with its overrides"),
        ({"by": {"x2": "gpus=2 system=mine"}}, "rows.Vanilla and by.x2 both give system: give it once"),
        (
            {"rows": {"a": "system=a", "a b": "system=b"}, "by": {"b c": "gpus=1", "c": "gpus=2"}},
            'rows and by make "a b c" twice: give other names',
        ),
        ({"claims": ["text"]}, "claims[0]=text: give its entry"),
    ],
)
def test_rows_and_claims_that_cannot_be_made_are_refused(tmp_path, keys, says):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(FILE | keys, sort_keys=False))
    with pytest.raises(InputError, match=re.escape(says)):
        experiment.load(tmp_path)


def result(
    step: str, word: str = HOLDS, mean: float = 2.0, series: str = "g, {}: a over b"
) -> evaluate.Result:
    told = {"published": 2.5, "direction": "above", "neutral": 1.0, "series": series, "step": step}
    verdict, ours = evaluate.Verdict(word), Estimate(mean, 0.1, 2)
    return experiments.result("capgnn_table7", series.format(step), verdict, ours, **told)


def changed(part: evaluate.Result, **keys) -> evaluate.Result:
    """The same of another claim."""
    return replace(part, claim=replace(part.claim, **keys))


def test_cells_of_one_verdict_share_a_line():
    """Apart stay other verdicts, other series, and parts that are no cells."""
    alone = changed(result("x2"), series="", step="", says="a part")
    found = [
        result("x2"),
        result("x3", FAILS, 0.5),
        result("x4"),
        result("x2", series="h, {}: a"),
        alone,
        alone,
    ]
    assert table.plain(found).split("\n")[1:11] == [
        "  holds           g, x2, x4: a over b",
        "                  published 2.5, 2.5; here 2 ± 0.1, 2 ± 0.1 (small)",
        "  does not hold   g, x3: a over b",
        "                  published 2.5; here 0.5 ± 0.1 (small)",
        "  holds           h, x2: a",
        "                  published 2.5; here 2 ± 0.1 (small)",
        *["  holds           a part", "                  published 2.5; here 2 ± 0.1 (small)"] * 2,
    ]
    assert table.counts(found)[2:] == ["6 parts of tables: 5 holds, 1 does not hold."]


def test_claims_are_drawn_with_what_is_published_beside_ours():
    holds = evaluate.Verdict(HOLDS)
    above = {"published": 5.0, "direction": "above"}
    number = experiments.result("e", "a number", holds, Estimate(4.5, 1.0, 3), **above)
    span = experiments.result("e", "a range", holds, Estimate(1.5, None, 1), published=[1, 2])
    other = changed(number, says="another", measure="mb_epoch")
    figure = picture.draw("t", [number, changed(number, entry="f"), span, other], ["cora"])
    first, second = figure.axes  # one per unit; what two entries say alike is drawn once
    assert [first.get_xlabel(), second.get_xlabel()] == ["epoch s", "MB per epoch"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["holds: a number", "holds: a range"]
    drawn = [(line.get_label(), list(line.get_xdata())) for line in first.lines]
    assert ("published", [5]) in drawn and ("published", [1, 2]) in drawn
    assert ("no difference", [0, 0]) in drawn
    assert {4.5, 1.5} <= {at[0] for _, at in drawn}
    assert picture.draw("t", [experiments.result("e", "nothing", holds)], ["cora"]) is None


def test_a_range_with_one_end_alone_is_said_so_and_drawn_to_the_edge():
    open_ended = experiments.result(
        "e", "no loss", evaluate.Verdict(HOLDS), Estimate(0.3, 0.5, 3), published=[-0.5, inf]
    )
    assert table.said(open_ended.claim.published) == "-0.5 or more" and table.said([-inf, 2]) == "2 or less"
    (ax,) = picture.draw("t", [open_ended], ["cora"]).axes
    (range_,) = [list(line.get_xdata()) for line in ax.lines if line.get_label() == "published"]
    assert range_ == [-0.5, ax.get_xlim()[1]] and -1 < ax.get_xlim()[0] < ax.get_xlim()[1] < 2


def test_a_series_is_a_panel():
    single = changed(
        result("x2"), says="a number", series="a number", step="an entry, which it does not name"
    )
    cells = [result("x2"), result("x3", FAILS, 0.5)]
    cells += [result(step, series=f"{k} of {{}}") for k in "hijk" for step in ("x2", "x3")]
    figure = picture.draw("t", [single, *cells], ["twin/reddit"])
    number, first, *others = figure.axes
    assert first.get_title(loc="left") == "g: a over b"
    assert [other.get_title(loc="left") for other in others] == [f"{k} of each" for k in "hijk"]
    pair = [result(step, series="a over b on {}, modelled") for step in ("x2", "x3")]
    assert picture.draw("t", pair, ["twin/reddit"]).axes[0].get_title(loc="left") == "a over b, modelled"
    alone = picture.draw("t", pair[:1], ["twin/reddit"]).axes[0]
    assert len(alone.get_yticklabels()) == 1 and not alone.get_title(loc="left"), "one cell is a row"
    assert first.get_ylabel() == single.claim.unit
    others[0].get_ylim()  # which brings the limits up to date
    _, top = others[0].transAxes.inverted().transform(others[0].transData.transform((0, 2.5)))
    assert top < 0.93, "the highest marker is not cut"
    lines = {line.get_label(): list(line.get_ydata()) for line in first.lines}
    assert lines["published"] == [2.5, 2.5] and lines["no difference"] == [1, 1]
    assert [2.0, 0.5] in [list(line.get_ydata()) for line in first.lines]
    assert first.get_yscale() == "log"


@pytest.mark.parametrize("neutrals", [(0.0, None), (None, None)])
def test_differences_are_not_on_a_logarithmic_axis(neutrals):
    """Also where the paper has no direction in some cells, or in any: intervals may go below 0."""
    cells = [
        changed(result(f"x{n}"), neutral=neutral, direction=None if neutral is None else "above")
        for n, neutral in enumerate(neutrals)
    ]
    assert picture.draw("t", cells, ["twin/reddit"]).axes[0].get_yscale() == "linear"


def test_a_series_is_decided_from_runs(tmp_path):
    plan = made(tmp_path, measure="test_acc_percent")
    scores = {"vanilla": 0.9, "adaqp": 0.6, "capgnn": 0.3}

    runs = {
        f"system={system}": [
            traces.finished(tmp_path / f"{system}{seed}", traces.config(seed=seed), target=score)
            for seed in (1, 2)
        ]
        for system, score in scores.items()
    }
    found = evaluate.results({"mine": plan}, lambda sweep: runs[sweep.split()[0]])
    found = [each for each in found if each.experiment]
    assert [each.claim.step for each in found] == ["x2", "x6", "x2", "x6", "x2"]
    assert [each.ours.mean for each in found] == pytest.approx([3, 3, 3, 3, 2], rel=0.02)
