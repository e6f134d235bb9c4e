"""Inherited by every system over parts: with its knobs on it equals its paper's equations, epoch by epoch, on
random graphs; what a system draws, its oracle is told.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.strategies import booleans, fixed_dictionaries, integers, just, sampled_from

from systems.varco import columns
from tests import systems
from tests.oracles import (
    adaqp,
    bns,
    capgnn,
    digest,
    ecgraph,
    grappa,
    halo,
    llcg,
    pipegcn,
    pscgcn,
    sancus,
    sanqus,
    skipg,
    supergnn,
    sylvie,
    varco,
)
from tests.oracles.samples import OPERATORS, RUNS, random_graph, with_edge_weights
from tests.systems import Settings
from tests.test_systems_oracle_bns import drawer as drawn_rows
from tests.test_systems_oracle_capgnn import CACHES, assert_same_counts, assert_sent
from tests.test_systems_oracle_lean import least
from tests.test_systems_oracle_llcg import drawer as drawn_batches
from tests.test_systems_oracle_pscgcn import draws as drawn_edges

FEATURES = sampled_from(["refetch", "once"])
RUN = fixed_dictionaries(
    RUNS
    | {
        "method": sampled_from(["random", "metis"]),
        "rows": sampled_from(["all", "needed"]),
        "weighted": booleans(),
    }
)


def flags_of(outcome, parts: int, epochs: int, layers: int) -> np.ndarray:
    """active[e, l, j] as the workers reported them; layers that are fetched once report none."""
    active = np.zeros((epochs, layers, parts), bool)
    for j, worker in enumerate(outcome.workers):
        for e in range(epochs):
            for (layer, name), value in worker["metrics"][e].items():
                if name == "active":
                    active[e, layer, j] = value == 1.0
    return active


def same_flags(outcome, history, knobs) -> None:
    want = np.asarray(history.active)
    first = 1 if knobs["features"] == "once" else 0
    got = flags_of(outcome, want.shape[2], len(want), want.shape[1])
    np.testing.assert_array_equal(got[:, first:], want[:, first:])


def same_renewals(outcome, history, _) -> None:
    for worker in outcome.workers:
        assert [epoch[-1, "active"] for epoch in worker["metrics"]] == history.renewed


@st.composite
def sancus_knobs(draw) -> dict:
    # The norm is drawn with the rule that reads it, so that few examples meet all four.
    rules = [("epoch_fixed", "relative"), ("epoch_adaptive", "relative")]
    rules += [("variation_gap", norm) for norm in ("relative", "max", "fro", "mean")]
    staleness, norm = draw(sampled_from(rules))
    bounds = sampled_from([0.001, 0.005, 0.02, 0.1, 0.3]) if staleness == "variation_gap" else integers(0, 3)
    return {
        "staleness": staleness,
        "norm": norm,
        "bound": draw(bounds),
        "phase": draw(sampled_from(["stagger", "paper"])),
        "flags": draw(sampled_from(["layer", "worker"])),
        "features": draw(sampled_from(["refetch", "kept", "once"])),
        "clip": draw(sampled_from([math.inf, 0.05, 0.005])),
        "clip_scale": draw(sampled_from(["sqrt", "inverse"])),
        "warmup": draw(sampled_from([1, 1, 2, 3])),
    }


CODED = fixed_dictionaries(
    {"bits": sampled_from([2, 4, 8, 32]), "gradients": sampled_from(["coded", "coded", "exact"])}
)
AGG = {("weights", "uniform"): "mean", ("weights", "train"): "weighted",
       ("gradients", "uniform"): "gradients", ("gradients", "train"): "weighted gradients"}  # fmt: skip


def same_tiers(outcome, history, knobs) -> None:
    assert_same_counts(outcome, history, first_layer=1 if knobs["features"] == "once" else 0)
    assert_sent(outcome, history, knobs["policy"], value=8)


def of_capgnn(drawn) -> dict:
    policy, tiers = drawn.pop("policy, tiers")
    return {**drawn, "rapa": False, "policy": policy, "tiers": tiers}


def for_adaqp(knobs) -> dict:
    given = {name: value for name, value in knobs.items() if name != "assignment"}
    return given | {"adaptive": knobs["assignment"] == "adaptive"}


def for_digest(knobs) -> dict:
    return {
        "interval": knobs["interval"],
        "init": knobs["start"],
        "loss": knobs["loss"],
        "schedule": {"after": "shifted", "literal": "literal"}[knobs["schedule"]],
        "agg": AGG[knobs["aggregate"], knobs["weighting"]],
    }


def for_pscgcn(knobs) -> dict:
    policy = {"layers": "variance", "code": "code"}[knobs["norms"]]
    return {
        "policy": "uniform" if knobs["sampling"] == "uniform" else policy,
        "a_inner": knobs["inner_factor"],
        "a_boundary": knobs["boundary_factor"],
        **{k: knobs[k] for k in ("tau", "rate", "refresh", "rescale", "gradients", "features")},
    }


@dataclass(frozen=True)
class Case:
    """A system beside its oracle.

    knobs  of the system; the oracle's too, unless `named` says which those are
    drawn  (graph, assignment, seed, knobs) -> what the oracle takes by place: the system's own draws
    also   (outcome, history, knobs): what else is compared
    rows   whether it may take and give needed rows alone
    """

    train: Callable
    knobs: st.SearchStrategy[dict]
    drawn: Callable = lambda graph, assignment, seed, knobs: ()
    named: Callable = lambda knobs: knobs
    also: Callable = lambda outcome, history, knobs: None
    operators: list = tuple(OPERATORS)
    epochs: int = 6
    hidden: int = 4
    rows: bool = False
    examples: int = 6


def of_seed(_graph, _assignment, seed, _knobs) -> tuple:
    return (systems.drawer(seed),)


CASES = {
    "zero_halo": Case(halo.zero_halo, fixed_dictionaries({}), examples=4),
    "local": Case(halo.local, fixed_dictionaries({}), examples=4),
    "adaqp": Case(
        adaqp.train,
        st.one_of(*[
            fixed_dictionaries({
                "bits": bits, "assignment": st.just(how), "period": integers(1, 4), "features": FEATURES,
            })
            for bits, how in ((sampled_from([2, 4, 8]), "uniform"), (integers(3, 7), "adaptive"))
        ]),
        of_seed,
        for_adaqp,
        examples=8,
    ),
    "bns": Case(
        bns.train,
        fixed_dictionaries({"rate": sampled_from([0.1, 0.3, 0.5, 0.8, 1.0]), "features": FEATURES}),
        lambda graph, assignment, seed, k: (drawn_rows(k["rate"], seed),),
    ),
    "capgnn": Case(
        capgnn.train,
        fixed_dictionaries({
            "policy, tiers": sampled_from(CACHES),
            "local_capacity": integers(0, 16),
            "global_capacity": integers(0, 20),
            "refresh": sampled_from([1, 2, 3, 10]),
            "gradients": sampled_from(["fresh", "exact"]),
            "pipeline": booleans(),
            "features": FEATURES,
            "top_k": sampled_from([-1, -1, 1, 3]),
        }).map(of_capgnn),
        named=lambda k: {name: value for name, value in k.items() if name != "rapa"},
        also=same_tiers,
        examples=16,
    ),
    "digest": Case(
        digest.train,
        fixed_dictionaries({
            "interval": integers(1, 4),
            "start": sampled_from(["exact", "zeros"]),
            "loss": sampled_from(["partition", "global"]),
            "features": FEATURES,  # exact either way, so the oracle has no such knob
            "schedule": sampled_from(["after", "literal"]),
            "aggregate": sampled_from(["weights", "gradients"]),
            "weighting": sampled_from(["uniform", "train"]),
        }).filter(lambda knobs: knobs["loss"] == "partition" or knobs["aggregate"] == "gradients"),
        named=for_digest,
        epochs=8,
        examples=8,
    ),
    # An odd width: where p = 0 and ReLU has left 0 in some columns, p and the mean with c are equally
    # near when the odd numbers 2 q + 1 of the other columns add up to as many, and rounding would choose.
    "ecgraph": Case(
        ecgraph.train,
        fixed_dictionaries({
            "period": sampled_from([2, 3, 5, 10]),
            "bits": sampled_from([1, 2, 4, 8]),
            "backward_bits": sampled_from([1, 2, 4, 8, 32]),
            "tune": booleans(),
            "rate": sampled_from(["sent", "computed"]),
            "features": FEATURES,
        }),
        epochs=7,
        hidden=5,
        rows=True,
    ),
    "ecgraph not compensated": Case(
        ecgraph.train,
        fixed_dictionaries({
            "compensate": just(False),
            "bits": sampled_from([1, 2, 4, 8]),
            "backward_bits": sampled_from([1, 2, 4]),
            "features": FEATURES,
        }),
        rows=True,
    ),
    "grappa": Case(
        grappa.train,
        fixed_dictionaries({
            "period": sampled_from([1, 2, 3, 50]),
            "correction": sampled_from(["none", "scalar", "shrunk"]),
            "shrink": sampled_from([0.2, 0.5]),
        }),
    ),
    "llcg": Case(
        llcg.train,
        fixed_dictionaries({
            "local_steps": integers(1, 4),
            "server_steps": integers(0, 3),
            "batch": sampled_from([1, 3, 5, 256]),
            "server_lr": sampled_from([None, 0.003, 0.05]),
            "features": FEATURES,
        }),
        lambda graph, assignment, seed, k: (drawn_batches(graph, assignment, k["batch"], seed),),
        lambda k: {name: value for name, value in k.items() if name != "features"},
        epochs=5,
    ),
    "pipegcn": Case(
        pipegcn.train,
        fixed_dictionaries({
            "smooth_features": booleans(),
            "smooth_gradients": booleans(),
            "momentum": sampled_from([0.3, 0.95]),
            "features": FEATURES,
        }),
    ),
    "pscgcn": Case(
        pscgcn.train,
        fixed_dictionaries({
            "tau": integers(0, 2),
            "rate": sampled_from([0.3, 0.6, 1.0]),
            "refresh": integers(1, 4),
            "sampling": sampled_from(["variance", "uniform"]),
            "norms": sampled_from(["layers", "code"]),
            "rescale": sampled_from(["inverse", "selfnorm"]),
            "gradients": sampled_from(["tg", "sampled"]),
            "cache": sampled_from([0.0, 0.4, 1.0]),
            "policy": sampled_from(["inclusion", "degree", "random"]),
            "features": FEATURES,
            "inner_factor": sampled_from([1.1, 1.0, 4.0]),
            "boundary_factor": sampled_from([1.0, 0.5, 2.0]),
        }),
        lambda graph, assignment, seed, k: (drawn_edges(graph, seed),),
        for_pscgcn,
        examples=12,
    ),
    "sancus": Case(sancus.train, sancus_knobs(), also=same_flags, examples=12),
    "sanqus": Case(
        sanqus.train, st.builds(dict.__or__, sancus_knobs(), CODED), of_seed, also=same_flags
    ),
    "skipg": Case(
        skipg.train, fixed_dictionaries({"bound": integers(0, 4), "features": FEATURES}), also=same_renewals
    ),
    "supergnn": Case(
        supergnn.train,
        fixed_dictionaries({"bits": sampled_from([2, 4, 8, 16, 32]), "features": FEATURES}),
        lambda *_: (least,),
        rows=True,
    ),
    "supergnn with attention": Case(
        supergnn.train_attention,
        fixed_dictionaries({"bits": sampled_from([2, 4, 8, 16, 32])}),
        operators=[("gat", None)],
        epochs=5,
        rows=True,
        examples=4,
    ),
    "sylvie": Case(
        sylvie.train,
        fixed_dictionaries({
            "bits": sampled_from([1, 1, 2, 4, 8]),
            "mode": sampled_from(["synchronous", "asynchronous", "asynchronous"]),
            "period": sampled_from([0, 1, 2, 3, 20]),
            "features": FEATURES,
        }),
        of_seed,
    ),
    "varco": Case(
        varco.train,
        fixed_dictionaries({
            "compression": sampled_from([1, 2, 4, 16, 128]),
            "slope": sampled_from([0, 1, 2, 5]),
            "rescale": booleans(),
            "features": FEATURES,
        }),
        lambda graph, assignment, seed, k: (lambda *which: columns(seed, *which).numpy(),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_system_equals_its_oracle(pool, name):
    case = CASES[name]

    @examples(max_examples=case.examples)
    @given(knobs=case.knobs, run=RUN, operator=sampled_from(case.operators))
    def equals(knobs, run, operator):
        graph, parts = random_graph(run["seed"], vertices=18, directed=run["directed"]), run["parts"]
        model, seed = dict(zip(("model", "normalisation"), operator)), run["seed"] % 100
        normalisation = {} if operator[1] is None else {"normalisation": operator[1]}
        block = systems.block(name.split()[0], **knobs)
        if run["weighted"] and systems.takes_weights(block, model["model"]):
            # The oracles find halos by weights above 0.
            graph = with_edge_weights(graph, seed, zeros=0)
        shape = systems.small(operator[0], run["layers"], case.hidden, **normalisation)
        rows = {"rows": run["rows"]} if case.rows else {}
        how = Settings(shape, epochs=case.epochs, seed=seed, **rows)
        outcome = systems.run(pool, graph, block, parts, run["method"], how)
        drawn = case.drawn(graph, outcome.assignment, seed, knobs)
        known = case.named(knobs) | rows | (model if normalisation else {})
        history = systems.history(case.train, graph, outcome, how, *drawn, **known)
        systems.assert_trained_alike(outcome, history)
        case.also(outcome, history, knobs)

    equals()
