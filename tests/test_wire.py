"""Rows that travel as bfloat16 are rounded once, both ways, and counted as 2 bytes per value; nothing else
is.
"""

import dataclasses

import numpy as np
import pytest
import torch

from harness.dev.conformance.subject import facts_of
from harness.run import config
from tests import systems, training
from tests.graphs import random_graph
from tests.systems import shards_of

GRAPH = random_graph(40, 4, seed=2)
TRAINED = ["vanilla", "sancus", "pipegcn", "pscgcn", "capgnn without its cache"]
SENDING = {
    **{
        name: systems.block(name)
        for name in ("vanilla", "cagnet", "sancus", "skipg", "pipegcn", "bns", "pscgcn", "llcg")
    },
    "capgnn without its cache": systems.block("capgnn", jaca=False, rapa=False),
}
REFUSING = {name: systems.block(name) for name in ("adaqp", "capgnn", "cdfgnn", "digest", "digest_a")}


@pytest.mark.parametrize(
    "dtype,transport", [("float32", "memory"), ("float64", "memory"), ("float32", "sockets")]
)
def test_rows_are_rounded_once_each_way_and_sums_and_evaluation_are_not(pool, dtype, transport):
    assignment = np.arange(40, dtype=np.int32) % 3
    shards = shards_of(GRAPH, assignment, 3)
    workers = pool.run(training.cross, 3, 5, dtype, per_worker=shards, transport=transport)
    everyone = torch.zeros(40, 3, dtype=getattr(torch, dtype))
    for found, shard in zip(workers, shards):
        everyone[torch.as_tensor(shard.inner).long()] = found["h"]

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().to(x.dtype)

    for purpose, travels in (("halo", rounded), ("evaluate", lambda x: x), ("norms", lambda x: x)):
        gradient = torch.zeros_like(everyone)
        for found, shard in zip(workers, shards):
            halo = torch.as_tensor(shard.halo).long()
            assert torch.equal(found[purpose][0], travels(everyone[halo]))
            gradient[halo] += travels(travels(everyone[halo]) * 0.3)
        for found, shard in zip(workers, shards):
            own = gradient[torch.as_tensor(shard.inner).long()]
            torch.testing.assert_close(found[purpose][1], own, rtol=1e-6, atol=1e-7)
    exact = torch.tensor(0.1, dtype=everyone.dtype)
    for rank, found in enumerate(workers):
        for j, block in enumerate(found["blocks"]):
            value = exact + j
            assert torch.equal(block, torch.full_like(block, float(value if j == rank else rounded(value))))
        assert torch.allclose(found["total"], 3 * exact, rtol=1e-6)
        for (_, _, purpose, peer), (rows, size) in found["sent"].items():
            if purpose in ("halo", "blocks"):
                assert size == 2 * rows * {"halo": 3, "blocks": 2}[purpose]
            elif purpose != "weights":
                assert size == everyone.element_size() * rows * 3, (purpose, peer)


@pytest.mark.parametrize("name", TRAINED)
def test_a_system_sends_two_bytes_per_value_and_goes_on_bit_for_bit(pool, name):
    how = {"system": SENDING[name], "epochs": 4}
    full = training.run(pool, GRAPH, 2, **how)
    half = training.run(pool, GRAPH, 2, **how, wire="bfloat16")
    assert training.same_bits(half, training.run(pool, GRAPH, 2, **how, wire="bfloat16", stop_at=2))
    np.testing.assert_allclose(half[0]["losses"], full[0]["losses"], rtol=0.05)
    seen = 0
    for one, other in zip(full, half):
        for before, after in zip(one["sent"], other["sent"]):
            for key in before.keys() & after.keys():
                (rows, size), (rows_after, size_after) = before[key], after[key]
                layer, _, purpose, _ = key
                if layer >= 0 and rows and rows_after and purpose not in ("flags", "wanted", "bits"):
                    assert size / rows == 4 * size_after / rows_after, key  # float64 here
                    seen += 1
                elif purpose == "weights":
                    assert size == size_after
    assert seen


@pytest.mark.parametrize("name", [*REFUSING, *SENDING])
def test_a_system_whose_rows_it_does_not_carry_refuses_it(name):
    facts = dataclasses.replace(facts_of("gcn"), wire="bfloat16")
    reason = config.make_system({**REFUSING, **SENDING}[name]).supports(facts)
    assert (reason is None) == (name in SENDING)
    assert reason is None or (
        reason.startswith("wire=bfloat16 cannot be: ") and "give wire=float32" in reason
    )
