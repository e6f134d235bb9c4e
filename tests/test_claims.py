"""Verdicts on what the papers print: the rule, the experiments' files, and that they follow from traces."""

import functools
import re
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness import cli
from harness.base.errors import InputError
from harness.data import twin
from harness.papers.claims import __main__ as claims
from harness.papers.claims import evaluate, experiment, published, reference, table
from harness.papers.claims.claim import Size
from harness.papers.claims.evaluate import NOT_RUN
from harness.papers.claims.verdict import DIRECTION, FAILS, HOLDS, UNKNOWN
from harness.papers.figures import __main__ as figures
from harness.run import overrides
from tests import experiments, papers, traces


def test_every_published_experiment_has_a_part_in_some_file_and_every_claim_a_unit():
    plans = experiments.all_of_them()
    told = {part.entry for plan in plans.values() for part in (*plan.claims, *plan.needs)}
    findings = told - set(published.experiments())
    assert findings <= set(plans) and len(told - findings) == len(published.experiments()) == 101
    assert all(claim.unit for plan in plans.values() for claim in plan.claims), "what an axis calls it"


# In every run of the suite; the rest at night.
COMPOSED_OFTEN = {"cdfgnn_messages", "digest_interval", "halos", "systems"}
COMPOSED = [
    pytest.param(name, marks=() if name in COMPOSED_OFTEN else pytest.mark.nightly(6))
    for name, sizes in experiments.sizes().items()
    if sizes
]


@pytest.mark.parametrize("name", COMPOSED)
def test_what_an_experiment_asks_for_is_a_run(name):
    plan = experiment.one(name)
    # What this project found by itself, and what abstracts say of other systems, has no paper's settings.
    papers_of = {published.entry(claim.entry).paper for claim in plan.claims if claim.entry != name}
    of_a_paper = bool(papers_of - {"abstracts"})
    least = set(experiment.SIZES if of_a_paper else experiment.SIZES[:2])
    assert plan.title and least <= set(plan.sizes) <= set(experiment.SIZES)
    # Every row and every size once: all pairs would take several times as long.
    first, *more = plan.rows
    pairs = [(first, size) for size in plan.sizes] + [(row, experiment.SIZES[0]) for row in more]
    for sweep in (sweep for pair in pairs for sweep in plan.sweeps(*pair)):
        overrides.check(["-m", *sweep.split()])


def test_no_size_takes_a_twin_smaller_than_it_can_be():
    plans = experiments.all_of_them().values()
    asked = {graph for plan in plans for size in plan.sizes.values() for graph in size.graphs}
    scaled = [re.match(r"twin/(\S+) .*dataset\.scale=(\S+)", graph) for graph in asked]
    found = [(name, float(each[2])) for each in scaled if each for name in each[1].split(",twin/")]
    assert len(found) > 20
    for name, scale in found:
        twin._scaled(name, twin.SPECS[name], scale)


RULE = {
    "title": "t",
    "rows": {"a": "system=a", "b": "system=b"},
    "sizes": {"small": {"graphs": ["cora"], "runs": "seed=1,2,3", "minutes": 1}},
    "claims": [
        {
            "entry": "sancus_claim_accuracy",
            "says": "a is above b",
            "measure": "test_acc_percent",
            "rows": ["a", "b"],
            "compare": "difference",
            "direction": "above",
        }
    ],
}


REPLAYED = {"replayed": "epoch", "words": "cluster=cdfgnn"}


def changed(**keys) -> dict:
    return RULE | {"claims": [RULE["claims"][0] | keys]}


@pytest.mark.parametrize(
    "given,says",
    [
        (changed(entry="sancus_claim_acuracy"), 'claims[0].entry="sancus_claim_acuracy" is not known'),
        (changed(compare="percent"), 'claims[0].compare="percent" is not known'),
        (changed(rows=["a", "c"]), 'claims[0].rows="c" is not known'),
        (changed(rows=["a"]), "claims[0].rows=['a']: compare=difference takes two"),
        (changed(across="best"), 'claims[0].across="best" is not known'),
        (changed(across="max", compare="descending"), "claims[0].across=max takes one number of each graph"),
        (changed(direction="up"), 'claims[0].direction="up" is not known'),
        (changed(direction=None), "claims[0] has neither published nor direction"),
        (changed(tolerance=3), "claims[0].tolerance=3.0 has no reason"),
        (changed(published=[3, 2]), "claims[0].published=[3, 2]: give a number, or [least, most]"),
        (changed(published=[-inf, inf]), "claims[0].published=[-inf, inf] has no end: give a number"),
        (changed(measure="mb_epok"), 'claims[0].measure="mb_epok" is not known; did you mean "mb_epoch"?'),
        (changed(measure={"metric": "x", "how": "most"}), 'claims[0].measure.how="most" is not known'),
        (changed(measure={"validation": "most"}), 'claims[0].measure.validation.how="most" is not known'),
        (changed(measure={"count": "x"}), "claims[0].measure={'count': 'x'}: give a column's key"),
        (changed(measure={"to": 2, "of": "a", "in": "epochs"}), "claims[0].measure.to=2"),
        (changed(measure={"to": 1, "of": "c", "in": "epochs"}), 'claims[0].measure.of="c" is not known'),
        (changed(measure={"to": 1, "of": "a", "in": "days"}), 'claims[0].measure.in="days" is not known'),
        (changed(graph="dblp"), 'claims[0].graph="dblp" is not known'),
        (changed(graph="cora,dblp"), 'claims[0].graph="dblp" is not known'),
        (changed() | {"rows": {"a": "system=a x=[1,2],[3]", "b": "system=b"}}, "rows: a is a sweep"),
        (changed(measur="x"), "claims[0].measur is not a key of Claim"),
        (changed(published=[-1, 2]), "published=[-1, 2] is not above 0, the value of no difference"),
        (changed(compare="ratio", published=-2), "published=-2 is no ratio: give more than 0"),
        (changed(compare="ratio", neutral=0), "neutral=0.0 is no ratio: give more than 0"),
        (changed(measure={**REPLAYED, "times": "x"}), "measure.times=x: give a number above 0"),
        (changed(measure={"metric": "x", "epochs": 5}), "measure.epochs=5: give the first and"),
        (changed(measure={**REPLAYED, "more": "x"}), "measure.more=x: give rows"),
        (changed(measure={**REPLAYED, "booked": "pack"}), "measure.booked=pack: give names of segments"),
        (changed() | {"cause": "nobody"}, 'cause="nobody" is not known'),
        (changed() | {"fits": 3}, "fits=3: give a list, of printed rows"),
        (
            RULE | {"sizes": {"small": {**RULE["sizes"]["small"], "graphs": ["cora split"]}}},
            'sizes.small: "split" is no override: give KEY=VALUE',
        ),
        (RULE | {"sizes": {"big": RULE["sizes"]["small"]}}, 'size="big" is not known'),
        (RULE | {"sizes": {}}, "its claims have no runs"),
        (RULE | {"sizes": 5}, "sizes=5: give keys, as small: "),
        (RULE | {"sizes": {"small": ["cora"]}}, "sizes.small=['cora']: give keys, graphs, runs and minutes"),
        (RULE | {"sizes": {"small": {"graphs": [[1]], "runs": "", "minutes": 1}}}, "graphs=[[1]]: give text"),
        (
            RULE | {"sizes": {"small": {"graphs": ["cora"], "minutes": 1}}},
            "sizes.small.runs is missing: give",
        ),
        (RULE | {"claims": [{"says": "s"}]}, "claims[0].entry is missing: give it"),
        (RULE | {"needs": [{"entry": "e", "needs": "n"}]}, "needs[0].part is missing: give it"),
        (RULE | {"fits": [1]}, "fits[0]=1: give keys, entry, printed"),
        (RULE | {"claims": 5}, "claims=5: give a list, each with entry, says"),
        (RULE | {"needs": [1]}, "needs[0]=1: give keys, entry, part and needs"),
        (changed(rows=[["a", "b"]]), "claims[0].rows=[['a', 'b']]: give texts"),
        (changed(published=[None, 2]), "claims[0].published=[None, 2]: give a number, or [least, most]"),
        (changed(control="c"), 'claims[0].control="c" is not known'),
        (RULE | {"note": "x"}, 'key="note" is not known'),
        ("text", "it holds no keys"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(given, says, tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given))
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        experiment.load(tmp_path)
    assert "mine.yaml: " in str(caught.value) and "\n" not in str(caught.value)


def test_a_list_is_one_value_and_no_sweep(tmp_path):
    rows = {"a": "system=a system.fanouts=[[5,5],[1]]", "b": "system=b"}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed() | {"rows": rows}))
    assert experiment.load(tmp_path)["mine"].rows == rows


def runs_of(tmp_path: Path, accuracy: dict[str, float], graph: str = "cora"):
    """Run folders of three seeds by the sweeps of the rule's rows; each row's seeds differ by a point."""
    there, name = {}, graph.removeprefix("twin/")
    source = "npz" if graph == name else "twin"
    for system, target in accuracy.items():
        paths = []
        for seed in (1, 2, 3):
            composed = traces.config(seed=seed, dataset__name=name, dataset__source=source)
            path = tmp_path / f"{graph}-{target}-{seed}"
            if not path.is_dir():  # rows may have the same scores, and several claims the same runs
                traces.finished(path, composed, target=target + 0.01 * seed)
            paths.append(path)
        there[f"system={system} dataset=cora seed=1,2,3"] = paths
    return lambda sweep: there.get(sweep, [tmp_path / "none"])


def verdict_of(tmp_path, accuracy, graph="cora", **keys) -> evaluate.Result:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed(**keys)))
    found = evaluate.results(experiment.load(tmp_path), runs_of(tmp_path, accuracy, graph))
    (result,) = (each for each in found if each.entry == "sancus_claim_accuracy")
    return result


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    """A test decides several claims on the same runs."""
    monkeypatch.setattr(evaluate, "Run", functools.cache(evaluate.Run))


def test_rows_of_other_seeds_are_not_compared(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed()))
    there = runs_of(tmp_path, {"a": 0.8, "b": 0.7})
    found = evaluate.results(
        experiment.load(tmp_path), lambda sweep: there(sweep)[: 2 if "system=b" in sweep else 3]
    )
    (result,) = (each for each in found if each.entry == "sancus_claim_accuracy")
    assert result.verdict == evaluate.Verdict(
        UNKNOWN, "b on cora has the seeds [1, 2] where a on cora has [1, 2, 3]: give all the same"
    )


def test_a_seed_that_divides_by_0_leaves_no_value(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed(compare="ratio")))
    (claim,) = experiment.load(tmp_path)["mine"].claims
    values = {"a": [[0.0, 1.0, 2.0]], "b": [[0.0, 2.0, 4.0]]}
    monkeypatch.setattr(evaluate, "_by_seed", lambda claim, row, runs, targets: np.array(values[row]))
    there = runs_of(tmp_path, {"a": 0.8, "b": 0.7})
    runs = {
        row: [[evaluate.Run(path) for path in there(f"system={row} dataset=cora seed=1,2,3")]] for row in "ab"
    }
    with np.errstate(invalid="ignore"):
        assert evaluate.measure(claim, runs).lost == "a seed divides by 0"


def test_a_changed_trace_changes_the_verdict(tmp_path):
    asks = evaluate.Verdict("not run", f"halobench figures mine --from {tmp_path}")
    assert verdict_of(tmp_path, {"a": 0.8}).verdict == asks
    ahead = verdict_of(tmp_path, {"a": 0.8, "b": 0.7})
    assert ahead.verdict.word == DIRECTION
    behind = {"a": 0.7, "b": 0.8}
    assert verdict_of(tmp_path, behind, cause="paper").verdict.word == FAILS
    twins = verdict_of(tmp_path, behind, cause="twin", because="it is small").verdict
    assert twins == evaluate.Verdict(UNKNOWN, "here it does not hold; it is small", cause="twin")
    chance = verdict_of(tmp_path, {"a": 0.81, "b": 0.8}).verdict
    assert chance.word == UNKNOWN, "the least step between scores of seeds that differ is no certainty"
    assert verdict_of(tmp_path, {"a": 0.8, "b": 0.7}, published=1.05 * ahead.ours.mean).verdict.word == HOLDS
    alone = {"rows": ["a"], "compare": "value", "control": "b"}
    control = evaluate.Verdict(UNKNOWN, "b, the control, does as well", cause="seeds")
    assert verdict_of(tmp_path, {"a": 0.8, "b": 0.8}, **alone, cause="seeds").verdict == control
    assert verdict_of(tmp_path, {"a": 0.8, "b": 0.7}, **alone).verdict.word == DIRECTION
    loss = {"compare": "difference", "direction": "below", "control": "b"}
    kept = verdict_of(tmp_path, {"a": 0.7, "b": 0.8}, **loss).verdict
    assert kept.word == DIRECTION, "a loss that is told apart stands, whatever a control does"
    alike = {**loss, "direction": None, "published": 0, "tolerance": 50, "reason": "r"}
    same = verdict_of(tmp_path, {"a": 0.7, "b": 0.8}, **alike).verdict
    assert same.word == UNKNOWN, "what is kept is kept without what the claim is about, too"
    twin = verdict_of(tmp_path, {"a": 0.8, "b": 0.8}, "twin/cora", **alone, cause="time model").verdict
    assert (twin.word, twin.cause) == (UNKNOWN, "twin"), "whatever else the file names"
    never = {**alone, "published": 1e9, "direction": None, "cause": "paper"}
    lost = verdict_of(tmp_path, {"a": 0.8, "b": 0.8}, **never).verdict
    assert (lost.word, lost.cause) == (FAILS, "paper"), "a promise that is not kept, whatever a control does"
    both, why = {"a": 0.8, "b": 0.7}, "the twin was made so"
    made = verdict_of(tmp_path, both, "twin/cora", calibrated=why)
    assert made.verdict == evaluate.Verdict("by construction", why)
    assert verdict_of(tmp_path, both, calibrated=why).verdict.word == DIRECTION, "the real graph was not"
    off = verdict_of(tmp_path, {"a": 0.7, "b": 0.8}, "twin/cora", calibrated=why).verdict
    assert (off.word, off.cause) == (UNKNOWN, "twin"), "a twin that is off what it was made for"
    assert verdict_of(tmp_path, both, by_construction="a format").verdict.why == "a format"
    assert verdict_of(tmp_path, both, compared=True).verdict.word == evaluate.COMPARED


def test_two_parts_of_one_measurement_are_counted_once(tmp_path):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(changed()))
    plan = experiment.load(tmp_path)["mine"]
    (claim,) = plan.claims
    again = replace(claim, entry="sancus_fig23", says="in other words", published=3.0, direction="above")
    one = replace(claim, says="of one row", rows=claim.rows[:1], compare="value")
    less = replace(claim, says="in percent", rows=claim.rows[::-1], compare="less_percent")
    plan = replace(plan, claims=(claim, again, one, less, replace(claim, says="as a ratio", compare="ratio")))
    # Another experiment has the same runs under other names, and says a default.
    rows = {f"their {name}": f"{words} model=gcn" for name, words in plan.rows.items()}
    there = replace(claim, says="of another file", rows=[f"their {name}" for name in claim.rows])
    theirs = replace(plan, name="theirs", rows=rows, claims=(there,))
    found = evaluate.results({"mine": plan, "theirs": theirs}, runs_of(tmp_path, {"a": 0.8, "b": 0.7}))
    told = {each.says: each.again for each in found if each.experiment in ("mine", "theirs")}
    assert told == {
        claim.says: "sancus_fig23",
        "in other words": "",
        "of one row": "",
        "in percent": "",
        "as a ratio": claim.entry,
        "of another file": "sancus_fig23",
    }


def test_a_measurement_counts_where_it_has_been_run():
    missing = experiments.result("sancus_fig23", "a", evaluate.Verdict(NOT_RUN), published=1.0)
    there = experiments.result("sancus_fig24", "a", evaluate.Verdict(HOLDS))
    assert [each.again for each in evaluate.counted_once([missing, there])] == ["sancus_fig24", ""]
    none = replace(there, verdict=evaluate.Verdict(NOT_RUN))
    assert [each.again for each in evaluate.counted_once([missing, none])] == ["", "sancus_fig23"]


def test_one_is_told_in_the_singular():
    result = experiments.result("entry", "it holds", evaluate.Verdict(HOLDS, ""))
    assert table.counts([result]) == [
        "1 published experiment: 1 decided whole, 0 in part, 0 not.",
        "With a verdict from traces on every part, cannot tell included: 1.",
        f"1 part of figures and statements: 1 {HOLDS}.",
    ]
    assert table.counts([result, result])[2] == f"2 parts of figures and statements: 2 {HOLDS}."
    unknown = replace(result, verdict=evaluate.Verdict(UNKNOWN, ""))
    missing = replace(result, verdict=evaluate.Verdict(NOT_RUN, ""))
    assert table.counts([result, unknown])[1].endswith(": 1."), "decided in part, with a verdict on both"
    assert table.counts([result, missing])[1].endswith(": 0.")


def test_a_listing_without_parts_has_its_columns():
    assert list(table.frame([])) == list(table.COLUMNS)


def test_the_listing_names_all_with_ones_own_and_counts_them(tmp_path, capsys, monkeypatch, refused):
    monkeypatch.setattr(claims, "decided", functools.cache(reference.decided))  # for both
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(RULE))
    given = ["report", "claims", str(tmp_path / "results"), f"--reference={tmp_path / 'none'}"]
    for folder in ("results", "none"):
        said = f"{tmp_path / folder} is no folder: give one that is there"
        refused(cli.main, [*given, "--from", str(tmp_path)], said)
        (tmp_path / folder).mkdir()
    assert cli.main([*given, "--from", str(tmp_path)]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert all(f"{name}: " in said for name in published.experiments())
    assert "a is above b halobench figures own" in said  # what is missing here, and how to make it
    assert "halobench figures halos" in said and "no experiment has it" not in said
    assert "101 published experiments: 0 decided whole, 0 in part, 101 not." in said
    assert cli.main([*given, "--from", str(tmp_path), "--paper", "digest", "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "entry,part,published,ours,share,verdict,cause,why,again,experiment,size"
    assert all(row.startswith("digest_") for row in rows[1:])
    refused(cli.main, [*given, "--paper", "digst"], 'paper="digst" is not known; did you mean "digest"?')


def test_an_experiment_is_run_and_decided(tmp_path, capsys, monkeypatch):
    """From the yaml to the verdict, on runs that the command itself starts."""
    plan = experiment.one("halos")
    tiny = Size(["twin/flickr dataset.scale=0.005"], "gpus=2 epochs=1 seed=1,2", 1)
    rows = {row: how for row, how in plan.rows.items() if row in ("metis 4", "random 4")}
    claims = tuple(claim for claim in plan.claims if set(claim.rows) <= set(rows) and claim.graph is None)
    short = replace(plan, rows=rows, sizes={"smoke": tiny}, claims=claims)
    monkeypatch.setattr(experiment, "load", lambda folder: {"halos": short})
    names = ("results", "cache", "out", "keep")
    places = [f"--{name}={tmp_path / name}" for name in names]
    assert figures.main(["halos", *places]) == 0
    said = capsys.readouterr()
    assert "halos: 4 runs on twin/flickr, 4 to start; size smoke takes" in re.sub(r"\s+", " ", said.err)
    assert (tmp_path / "out" / "halos-claims.csv").is_file()
    assert "direction holds METIS, which cuts fewer edges" in re.sub(r"\s+", " ", said.out)
    kept = tmp_path / "keep" / "halos"
    assert {path.name for path in kept.iterdir()} == {
        "claims.csv", "runs.csv", "environment.json", "halos-claims.png",
    }  # fmt: skip
    told = str(papers.description(kept / "halos-claims.png"))
    assert "metis: halos of two hops are larger than those of one: here " in told
    assert figures.main(["halos", *places]) == 0
    assert "4 runs on twin/flickr, 0 to start" in re.sub(r"\s+", " ", capsys.readouterr().err)
    monkeypatch.setattr(reference, "load", lambda folder: {"halos": short})
    assert cli.main(["report", "claims", str(tmp_path / "results")]) == 0
    listed = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(r"direction holds METIS, which cuts fewer edges.*?\(smoke\)", listed)


def test_a_graph_is_given_the_rows_that_a_claim_needs_there(tmp_path):
    sizes = {"small": {"graphs": ["cora", "dblp"], "runs": "seed=1", "minutes": 1}}
    rows = {"a": "system=a", "b": "system=b", "c": "system=c", "d": "system=d"}
    one = RULE["claims"][0] | {"graph": "cora"}
    claims = [one, one | {"says": "elsewhere", "rows": ["a", "c"], "graph": "dblp"}]
    given = {"title": "t", "rows": rows, "sizes": sizes, "claims": claims}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(given))
    plan = experiment.load(tmp_path)["mine"]
    assert plan.rows_on("small", "cora") == ["a", "b", "d"], "d, of no claim, is there to be seen"
    assert plan.rows_on("small", "dblp") == ["a", "c", "d"]
