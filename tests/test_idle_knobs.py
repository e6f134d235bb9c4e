"""A knob that is said to have no effect has none: losses, weights and bytes are those of its default."""

import numpy as np
import pytest

from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings

# By system: what leaves other knobs idle, and each of these knobs with a value that is not its default.
RULE = {"rule": "literal", "xi": 0.1, "mu1": 0.1, "mu2": 0.1, "nu1": 0.5, "nu2": 0.005, "momentum": 0.1}
COSTS = {"alpha": 0.5, "threshold": 0.5, "rapa_degrees": "local", "vertex_bytes": 1.0, "edge_bytes": 1.0}
TIERS = {"policy": "lru", "capacity": 3, "local_capacity": 2, "global_capacity": 4, "top_k": 2, "refresh": 2}
RESERVED = {"reserved_device_mb": 1.0, "reserved_host_mb": 1.0}
THEOREM_2 = {"norms": "code", "inner_factor": 2.0, "boundary_factor": 3.0}
BY_COST = {"vertex": 2.0, "edge": 2.0, "row": 3.0, "memory": 9}
IDLE = [
    ("pipegcn", {}, {"momentum": 0.5}),
    ("sylvie", {"mode": "synchronous"}, {"period": 7}),
    ("llcg", {"server_steps": 0}, {"batch": 7, "server_lr": 0.5}),
    ("cofree", {"drop_edges": 0}, {"drop_rate": 0.9}),
    ("grappa", {"correction": "none"}, {"shrink": 0.9}),
    ("gas", {"outside": "drop"}, {"start": "zeros", "refresh": "epoch", "features": "refetch"}),
    ("gas", {"batch": None}, {"clusters": 3}),
    ("replicate", {"mode": "cache"}, BY_COST),
    ("lean", {"bits": 32}, {"scale": "row"}),
    ("varco", {"compression": 1.0}, {"slope": 2.0, "rescale": True}),
    ("graphsaint", {"sampler": "edge"}, {"length": 4}),
    ("graphsaint", {"budget": None}, {"sampler": "node", "length": 4, "coverage": 9.0}),
    ("adaqp", {}, {"period": 2}),
    ("ecgraph", {"period": 1}, {"bits": 4, "tune": False, "rate": "computed"}),
    ("ecgraph", {"period": 1, "backward_bits": 32}, {"compensate": False}),
    ("ecgraph", {"compensate": False}, {"period": 4, "tune": False, "rate": "computed"}),
    ("digest", {"loss": "global"}, {"weighting": "train"}),
    ("digest", {"interval": 1, "start": "zeros"}, {"schedule": "literal"}),
    ("sancus", {}, {"norm": "max", "flags": "worker", "phase": "paper", "clip_scale": "inverse"}),
    ("sancus", {"staleness": "epoch_adaptive"}, {"norm": "max", "flags": "worker"}),
    ("sancus", {"staleness": "variation_gap", "bound": 0.1}, {"phase": "paper"}),
    ("sancus", {"bound": 0}, {"warmup": 3, "phase": "paper"}),
    ("sanqus", {"bits": 32}, {"gradients": "exact"}),
    ("pscgcn", {"rate": 1.0}, THEOREM_2 | {"rescale": "selfnorm", "refresh": 2}),
    ("pscgcn", {"sampling": "uniform"}, THEOREM_2 | {"cache": 0.5, "policy": "degree", "refresh": 2}),
    ("pscgcn", {"tau": 0}, {"gradients": "sampled"}),
    ("pscgcn", {"features": "refetch", "cache": 0.0}, {"policy": "random"}),
    ("capgnn", {"jaca": False, "rapa": False}, TIERS | RESERVED | COSTS | {"beta_mb": 1.0}),
    ("capgnn", {"jaca": False}, {"tiers": "exclusive", "capacity_share": 0.5, "gradients": "fresh"}),
    ("capgnn", {"capacity": 3}, RESERVED),
    ("capgnn", {"capacity": 3, "policy": "lru"}, {"top_k": 1}),
    ("capgnn", {"local_capacity": 2, "global_capacity": 4}, {"capacity": 3} | RESERVED),
    ("capgnn", {"local_capacity": 2, "global_capacity": 4}, {"capacity_share": 0.5}),
    ("cdfgnn", {"cache": False}, RULE | {"epsilon": 0.1, "lambda1": 2.0, "lambda2": 0.5}),
    ("cdfgnn", {"cache": False}, {"scatter": "diff"}),
    ("cdfgnn", {"quantise": False}, {"bits": 2, "scatter": "fp32", "coding_error": True}),
    ("distdgl", {"batch": 4}, {"cache": 0.5, "policy": "random"}),
    ("distdgl", {"batch": 4, "features": "refetch", "service": "exchange"},
     {"policy": "frequency", "prefetch": 7}),
    ("distdgl", {"batch": 4, "fanouts": None}, {"replace": True, "key": "worker"}),
    ("bytegnn", {"batch": 4, "fanouts": None}, {"replace": True, "key": "worker", "prefetch": 2}),
    ("distdgl", {"batch": None}, {"drop_last": True}),
    ("distdgl", {"batch": 4, "remote": "zero", "split": "owner"},
     {"features": "refetch", "cache": 0.5, "service": "exchange"}),
    ("bytegnn", {"batch": 4, "remote": "drop"}, {"features": "refetch"}),
    ("bytegnn", {"batch": 4, "launch": "fixed"}, {"sigma": 1.0, "inflight": True}),
]  # fmt: skip


@pytest.mark.parametrize("name, set_to, idle", IDLE, ids=[f"{name}-{knobs}" for name, knobs, _ in IDLE])
def test_a_knob_without_effect_changes_nothing(pool, name, set_to, idle):
    graph, settings = random_graph(7, vertices=40), Settings(epochs=4)
    method = systems.partitions_of(name)[1][1]
    blocks = [systems.block(name, **set_to), systems.block(name, **set_to, **idle)]
    without, given = (systems.run(pool, graph, block, 3, method, settings) for block in blocks)
    assert make_system(blocks[0]).traits().ineffective == []
    said = make_system(blocks[1]).traits().ineffective
    assert [sentence.split("=")[0] for sentence in sorted(said)] == sorted(f"system.{knob}" for knob in idle)
    assert without.losses == given.losses
    assert [without.sent(epoch) for epoch in range(4)] == [given.sent(epoch) for epoch in range(4)]
    for before, after in zip(without.weights, given.weights):
        for weight in before:
            np.testing.assert_array_equal(before[weight], after[weight])


@pytest.mark.parametrize(
    "name, knobs",
    [
        ("sancus", {"staleness": "variation_gap", "bound": 0, "warmup": 3}),
        ("sancus", {"staleness": "epoch_adaptive", "bound": 0, "phase": "paper", "warmup": 3}),
        ("cdfgnn", {"quantise": False, "scatter": "diff"}),
        ("distdgl", {"remote": "zero", "split": "owner", "prefetch": 0}),
    ],
)
def test_a_knob_that_has_an_effect_is_not_said_to_have_none(name, knobs):
    assert make_system(systems.block(name, **knobs)).traits().ineffective == []


def test_drawing_ahead_has_an_effect_where_nothing_is_pulled():
    knobs = {"remote": "zero", "split": "owner", "service": "exchange", "prefetch": 0}
    (said,) = make_system(systems.block("distdgl", **knobs)).traits().ineffective
    assert said.startswith("system.service=exchange has no effect")
