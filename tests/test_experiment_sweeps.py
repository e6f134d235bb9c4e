"""Which runs a row of an experiment stands for, at each size and on each graph."""

from dataclasses import replace

import pytest

from harness.papers.claims import experiment
from harness.papers.claims.claim import Claim, Size


def test_a_row_says_more_than_its_size_and_a_fifth_of_the_epochs_is_one():
    rows = {"a": "system=a epochs=EPOCHS/5 partition=ebv", "b": "system=b"}
    size = Size(["cora"], "epochs=200 partition=metis seed=1,2", 1)
    plan = experiment.Experiment("mine", "t", rows, {"small": size})
    assert plan.sweeps("a", "small") == ["system=a epochs=40 partition=ebv dataset=cora seed=1,2"]
    assert plan.sweeps("b", "small") == ["system=b dataset=cora epochs=200 partition=metis seed=1,2"]
    few = replace(plan, sizes={"small": Size(["cora"], "epochs=4 seed=1", 1)})
    assert few.sweeps("a", "small") == ["system=a epochs=1 partition=ebv dataset=cora seed=1"]
    fourth = experiment.Experiment("mine", "t", {"a": "system=a gpus=GPUS/4"}, {"small": size})
    with_gpus = replace(fourth, sizes={"small": Size(["cora"], "gpus=8 seed=1", 1)})
    assert with_gpus.sweeps("a", "small") == ["system=a gpus=2 dataset=cora seed=1"]
    by_workers = replace(fourth, sizes={"small": Size(["cora"], "workers=8 seed=1", 1)})
    assert by_workers.sweeps("a", "small") == with_gpus.sweeps("a", "small")


@pytest.mark.parametrize(
    "draw, run", [({}, ["a"]), ({"x": {"rows": {"b": "B"}}}, ["a"]), ({"x": {}}, ["a", "b"])]
)
def test_a_drawing_that_names_its_rows_starts_no_more_runs(draw, run):
    claim = Claim("mine", "says", "mb_epoch", ["b"], graph="dblp")
    sizes = {"small": Size(["cora", "dblp"], "gpus=2 seed=1", 1)}
    rows = {"a": "system=a", "b": "system=b"}
    plan = experiment.Experiment("mine", "t", rows, sizes, draw, claims=(claim,))
    assert plan.rows_on("small", "cora") == run and plan.rows_on("small", "dblp") == ["a", "b"]
    alone = replace(plan, rows={"b": "system=b"})
    assert alone.rows_on("small", "cora") == ["b"], "a graph without a claim has all rows"


def test_graphs_of_a_size_are_named_by_their_names_or_by_all_of_their_words():
    graphs = ["cora", "cora dataset.split=random", "twin/dblp dataset.scale=0.1"]
    plan = experiment.Experiment("mine", sizes={"small": Size(graphs, "seed=1", 1)})
    cora, random, dblp = ([graph] for graph in graphs)
    named = {"cora": cora, "cora dataset.split=random": random, "dblp": dblp, None: graphs, "photo": []}
    named |= {"dblp,cora": graphs, "dblp,photo": dblp}
    assert {graph: plan.on("small", graph) for graph in named} == named
