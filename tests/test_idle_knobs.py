"""A knob that is said to have no effect has none: losses, weights and bytes are those of its default."""

from __future__ import annotations

import numpy as np
import pytest

from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings

# By system: what leaves other knobs idle, and these knobs with values that are not their defaults.
IDLE = [
    ("pipegcn", {}, {"momentum": 0.5}),
    ("sylvie", {"mode": "synchronous"}, {"period": 7}),
    ("llcg", {"server_steps": 0}, {"batch": 7, "server_lr": 0.5}),
    ("adaqp", {}, {"period": 2}),
    ("ecgraph", {"period": 1}, {"bits": 4, "tune": False, "rate": "computed"}),
    ("digest", {"loss": "global"}, {"weighting": "train"}),
    ("sancus", {}, {"norm": "max", "phase": "paper", "clip_scale": "inverse"}),
    ("sancus", {"staleness": "variation_gap", "bound": 0.1}, {"phase": "paper"}),
    ("sanqus", {"bits": 32}, {"gradients": "exact"}),
    ("pscgcn", {}, {"cache": 0.5, "policy": "degree"}),
    ("pscgcn", {"rate": 1.0}, {"rescale": "selfnorm", "norms": "code", "inner_factor": 2.0}),
    ("pscgcn", {"sampling": "uniform"}, {"norms": "code", "inner_factor": 2.0, "boundary_factor": 3.0}),
    (
        "capgnn",
        {"jaca": False, "rapa": False},
        {"policy": "lru", "capacity": 3, "top_k": 2, "refresh": 2, "reserved_host_mb": 1.0, "alpha": 0.5}
        | {"threshold": 0.5, "rapa_degrees": "local", "vertex_bytes": 1.0, "edge_bytes": 1.0, "beta_mb": 1.0},
    ),
    ("cdfgnn", {"cache": False}, {"epsilon": 0.1, "rule": "literal", "xi": 0.1, "momentum": 0.1}),
    ("cdfgnn", {"quantise": False}, {"bits": 2, "coding_error": True}),
    ("distdgl", {"batch": 4}, {"cache": 0.5, "policy": "random"}),
    ("distdgl", {"batch": 4, "features": "refetch"}, {"policy": "frequency"}),
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
