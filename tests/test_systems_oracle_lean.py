"""Lean equals its equations, epoch by epoch; exactly, it is full-graph training; and it sends what a least
cover of the needed cut edges says, and no more.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.architectures import Gcn, Sage
from harness.core.config import ModelConfig
from harness.core.context import RunFacts
from harness.core.models import Layer
from harness.data.partition.shard import Csr
from harness.run.config import make_system
from systems.parts.cover import least_cover
from tests import systems
from tests.oracles import dense, lean, lean_gat
from tests.oracles.lean import needed_sets
from tests.oracles.samples import OPERATORS
from tests.systems import Settings
from tests.test_cover import csr, matching
from tests.test_needed import sparse_graph

EXACT_SUMS = {"_target_": "harness.core.combine.Exact"}


def least(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cover that the system finds: there are several least ones, and no equation chooses."""
    block: Csr = csr(edges)
    found = least_cover(block, [edges.shape[1]])
    return found.rows, found.target


def refuses_needed_rows(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return edges.any(0), np.zeros(0, int)


RUN = {
    "seed": st.integers(0, 10_000),
    "parts": st.integers(2, 4),
    "layers": st.integers(2, 4),
    "directed": st.booleans(),
    "trained": st.integers(1, 6),
    "multilabel": st.booleans(),
    "model": st.sampled_from(OPERATORS),
    "hidden": st.sampled_from([2, 4]),  # narrower than the classes, and not
    "narrow": st.booleans(),
    "messages": st.sampled_from(["cover", "rows"]),
}


def drawn(run) -> tuple:
    """The graph and the settings of a run."""
    name, normalisation = run["model"]
    graph = sparse_graph(
        run["seed"], directed=run["directed"], trained=run["trained"], multilabel=run["multilabel"]
    )
    model = {**systems.small(name, run["layers"], normalisation=normalisation), "hidden": run["hidden"]}
    # Where all hidden units are dead, a bias may have a gradient of 0, computed as 1e-17. Under weight decay
    # Adam makes such a rounding lr weight_decay / eps = 500 times larger per epoch.
    optimiser = {"lr": 0.01, "weight_decay": 0.0}
    how = Settings(model=model, optimiser=optimiser, epochs=4, seed=run["seed"], combine=EXACT_SUMS)
    return graph, how


# Of its hidden units all are dead.
DEAD = {"seed": 4, "parts": 2, "layers": 3, "directed": False, "trained": 3, "multilabel": False}
DEAD |= {"model": ("gcn", "symmetric"), "hidden": 2, "narrow": False, "messages": "cover"}


@example(bits=4, scale="column", run=DEAD)
@settings(max_examples=8)
@given(bits=st.sampled_from([4, 8]), scale=st.sampled_from(["column", "row"]), run=st.fixed_dictionaries(RUN))
def test_lean_equals_its_oracle(pool, bits, scale, run):
    graph, how = drawn(run)
    knobs = {"bits": bits, "scale": scale, "narrow": run["narrow"], "messages": run["messages"]}
    outcome = systems.run(pool, graph, systems.block("lean", **knobs), run["parts"], settings=how)

    cover = least if run["messages"] == "cover" else refuses_needed_rows
    knobs = {"bits": bits, "scale": scale, "narrow": run["narrow"]}
    knobs |= dict(zip(("model", "normalisation"), run["model"]))
    history = systems.history(lean.train, graph, outcome, how, systems.drawer(how.seed), cover, **knobs)
    systems.assert_trained_alike(outcome, history)


@settings(max_examples=5)
@given(
    bits=st.sampled_from([4, 8, 32]),
    seed=RUN["seed"],
    parts=RUN["parts"],
    layers=RUN["layers"],
    directed=st.booleans(),
    trained=RUN["trained"],
)
def test_coded_attention_equals_its_oracle(pool, bits, seed, parts, layers, directed, trained):
    graph = sparse_graph(seed, directed=directed, trained=trained)
    how = Settings(model=systems.small("gat", layers), epochs=4, seed=seed, combine=EXACT_SUMS)
    outcome = systems.run(pool, graph, systems.block("lean", bits=bits), parts, settings=how)
    history = systems.history(lean_gat.train, graph, outcome, how, systems.drawer(seed), bits=bits)
    systems.assert_trained_alike(outcome, history)


@settings(max_examples=6)
@given(
    run=st.fixed_dictionaries(RUN),
    rows=st.sampled_from(["needed", "all"]),
    weighted=st.booleans(),
    features=st.sampled_from(["once", "refetch"]),
    extra_work=st.sampled_from([0, 0.5, 4]),
)
def test_as_they_are_messages_are_full_graph_training(pool, run, rows, weighted, features, extra_work):
    """Any graph, partition and depth."""
    graph, how = drawn(run)
    if weighted:
        graph = sparse_graph(run["seed"], directed=run["directed"], trained=run["trained"], weighted=True)
    knobs = {"bits": 32, "narrow": run["narrow"], "messages": run["messages"], "features": features}
    knobs["extra_work"] = extra_work
    how = replace(how, rows=rows, combine=None)
    outcome = systems.run(pool, graph, systems.block("lean", **knobs), run["parts"], settings=how)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))


@settings(max_examples=8)
@given(
    bits=st.sampled_from([4, 8, 32]),
    scale=st.sampled_from(["column", "row"]),
    rows=st.sampled_from(["needed", "all"]),
    run=st.fixed_dictionaries(RUN),
)
def test_bytes_are_the_closed_form(pool, bits, scale, rows, run):
    """Of every pair of workers, from the dense matrix: as many messages as a maximum matching has edges."""
    graph, how = drawn(run)
    how = replace(how, epochs=2, dtype="float32", rows=rows)
    knobs = {"bits": bits, "scale": scale, "narrow": run["narrow"], "messages": run["messages"]}
    outcome = systems.run(pool, graph, systems.block("lean", **knobs), run["parts"], settings=how)
    edges, sets = dense.adjacency(graph) != 0, needed_sets(graph, run["layers"])
    if rows == "all":
        sets = [np.ones_like(graph.train)] * len(sets)
    own = [outcome.assignment == part for part in range(run["parts"])]
    for l in range(1, run["layers"]):
        f_in, f_out = outcome.widths[l : l + 2]
        spared = int(l == run["layers"] - 1 and not run["multilabel"])
        width = min(f_in, f_out - spared) if run["narrow"] else f_in
        for i, receiver in enumerate(own):
            for j, sender in enumerate(own):
                if i == j:
                    continue
                block = edges[np.ix_(receiver & sets[l + 1], sender)]
                count = matching(block) if run["messages"] == "cover" else int(block.any(0).sum())
                size = 4 * width * count
                if bits < 32:
                    long, short = (width, count) if scale == "row" else (count, width)
                    size = short * (-(-long * bits // 8) + 2)
                want = (count, size if count else 0)
                for epoch in range(2):
                    sent = [worker["sent"][epoch] for worker in outcome.workers]
                    assert sent[j].get((l, "forward", "halo", i), (0, 0)) == want
                    assert sent[i].get((l, "backward", "halo", j), (0, 0)) == want


def test_a_column_of_logits_is_left_out_only_where_the_model_lets_it():
    system, shard = make_system(systems.block("lean", bits=32)), SimpleNamespace(labels=np.zeros(3, np.int32))
    assert system.narrowed(shard, [9, 8, 4], 1) == (True, 1)
    system.spares = False
    assert system.narrowed(shard, [9, 8, 4], 1) == (True, 0)
    assert Gcn.additive and Sage.additive and not ModelConfig.additive


class SquaredLayer(Layer):
    def forward(self, *given):
        return super().forward(*given).square()


@dataclass
class Squared(Gcn):
    """Logits are squares: a shift common to a row of A H W does not shift them alike."""

    additive: ClassVar[bool] = False

    def layer(self, f_in, f_out, last, generator):
        return (SquaredLayer if last else Layer)(f_in, f_out, False, generator)


def test_a_model_whose_logits_see_a_shift_is_trained_exactly(pool):
    model = {**systems.small(layers=3, hidden=8), "_target_": f"{__name__}.Squared"}
    graph, how = sparse_graph(4), Settings(model=model, combine=EXACT_SUMS)
    blocks = systems.block("lean", bits=32), systems.block("vanilla")
    systems.assert_trained_as(*(systems.run(pool, graph, block, 3, settings=how) for block in blocks))


def test_what_it_refuses():
    facts = RunFacts(model="gcn", matrix=True, num_workers=2, symmetric=True, multilabel=False)
    system = make_system(systems.block("lean"))
    assert "give rows=all" in system.supports(replace(facts, rows="needed", norm="batch"))
    assert "system.bits=32" in system.supports(replace(facts, wire="bfloat16"))
    exact = make_system(systems.block("lean", bits=32))
    assert exact.supports(replace(facts, wire="bfloat16")) is None
    with pytest.raises(InputError, match="bits"):
        make_system(systems.block("lean", bits=2))
