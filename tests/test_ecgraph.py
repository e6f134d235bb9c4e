"""EC-Graph: its buckets, its tuner, and that it sends what its rows' choices say, and no more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.run.config import make_system
from systems.ecgraph import (
    chosen,
    coded,
    compensated,
    fill,
    message,
    message_bytes,
    middles,
    nearest,
    parted,
    read_middles,
)
from tests import systems
from tests.oracles.bytes import halo_rows
from tests.oracles.samples import random_graph
from tests.systems import Settings
from tests.test_supergnn import ROWS

BITS = st.sampled_from([1, 2, 4, 8])


@given(rows=ROWS, bits=BITS)
def test_the_middle_of_a_bucket_is_at_most_half_a_bucket_away_and_travels_as_codes(rows, bits):
    x = torch.from_numpy(rows)
    codes, ends = coded(x, bits)
    got = middles(codes, ends, bits)
    half = (x.max() - x.min()) / 2**bits / 2
    assert ((got - x).abs() <= half * (1 + 1e-9) + 1e-12 * x.abs().max()).all()
    wire = message(codes, bits, ends)
    assert len(wire) == message_bytes(x.numel(), bits, 8) == -(-x.numel() * bits // 8) + 16
    told, sent = parted(wire, x.numel(), bits, x.dtype)
    assert torch.equal(told.view(x.shape), codes) and torch.equal(sent, ends)


def test_equal_values_are_their_own_middle_and_equals_are_coded():
    x = torch.full((3, 2), 0.1)
    codes, ends = coded(x, 2)
    c = middles(codes, ends, 2)
    assert torch.equal(c, x)
    assert nearest(x, x, c).tolist() == chosen(x, x, 2)[0].tolist() == [0, 0, 0]
    c = torch.tensor([[0.1, 0.1], [0.3, 0.3], [0.0, 0.0]])
    assert nearest(x, torch.full_like(x, 0.2), c).tolist() == [0, 1, 2]


@given(rows=ROWS, bits=BITS, away=st.floats(-9, 9), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_compiled_loops_choose_what_is_nearest_and_give_what_torch_operations_do(rows, bits, away, dtype):
    x = torch.from_numpy(rows).to(dtype)
    p = (x + away * torch.linspace(-1, 1, x.numel(), dtype=dtype).view_as(x)).contiguous()
    codes, ends = coded(x, bits)
    c = middles(codes, ends, bits)
    choices, got, wire, count = chosen(x, p, bits)
    ways = torch.stack([c, p, (c + p) / 2])
    errors = (ways - x).abs().sum(2)
    row = torch.arange(len(x))
    assert torch.equal(got, ends) and count == (choices != 1).sum()
    slack = 1e-5 if dtype == torch.float32 else 1e-12
    assert (errors[choices.long(), row] <= errors.amin(0) + slack * (x.abs() + p.abs()).sum(1)).all()
    h = p.clone()
    fill(h, wire, choices, ends, bits)
    assert torch.equal(h, ways[choices.long(), row])

    left = x.clone()
    wire = compensated(left, bits)
    assert torch.equal(wire, message(codes, bits, ends)) and torch.equal(left, x - c)
    read_middles(h, wire, bits)
    assert torch.equal(h, c)


@pytest.mark.parametrize(
    "bits, valued, tune, want",
    [(2, 4, True, 4), (8, 0, True, 8), (2, 5, True, 2), (2, 8, True, 2), (2, 9, True, 1), (1, 10, True, 1),
     (2, 0, False, 2)],
)  # fmt: skip
def test_bits_double_below_half_and_are_halved_above_four_fifths(bits, valued, tune, want):
    assert make_system(systems.block("ecgraph", tune=tune)).next_bits(bits, valued, 10) == want


@pytest.mark.parametrize(
    "rate, tune, features",
    [("sent", True, "refetch"), ("computed", False, "once")],
)
def test_bytes_are_those_of_the_rows_that_send_values(pool, rate, tune, features):
    """Rows are counted where values of them travel; all others follow from how many those are."""
    graph, period = random_graph(12, vertices=60), 4
    how = Settings({"name": "gcn", "layers": 3, "hidden": 9, "dropout": 0.2}, dtype="float32", epochs=9)
    block = systems.block("ecgraph", period=period, rate=rate, tune=tune, features=features, backward_bits=1)
    outcome = systems.run(pool, graph, block, 3, settings=how)
    rows = halo_rows(graph, outcome.assignment)
    shares = set()
    for (j, i), k in np.ndenumerate(rows):
        for l in range(0 if features == "refetch" else 1, 3):
            width, bits = outcome.widths[l], 2
            for epoch, sent in enumerate(outcome.workers[j]["sent"]):
                q, size = sent.get((l, "forward", "halo", i), (0, 0))
                if epoch == 0 or (epoch + 1) % period == 0:
                    both = rate == "sent" and epoch > 0
                    assert (q, size) == (k, 4 * k * width * (1 + both))
                else:
                    assert size == (-(-q * width * bits // 8) - (-2 * k // 8) + 8 if k else 0)
                    shares.add(q / k if k else None)
                    if tune and k:
                        bits = min(2 * bits, 8) if q < k / 2 else max(bits // 2, 1) if q > 0.8 * k else bits
                back = outcome.workers[i]["sent"][epoch].get((l, "backward", "halo", j), (0, 0))
                assert back == ((k, -(-k * width // 8) + 8) if l and k else (0, 0))
    assert len(shares) > 3, "some rows send values, and others do not"
