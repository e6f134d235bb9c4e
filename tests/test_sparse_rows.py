"""Rows that travel as what is not 0: the same bits, in as many bytes as the forms say."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.comm.sparse import WORDS, decode, encoded
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings

TYPES = [torch.float32, torch.float64, torch.bfloat16]


@st.composite
def rows(draw):
    """From empty to full, of one value or many; -0.0, NaN and infinities among them."""
    shape = draw(st.integers(0, 9)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.choice([1.0] if draw(st.booleans()) else [1.0, -0.0, 2.5, np.nan, np.inf, 1e-40], shape)
    there = rng.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.4, 1.0]))
    return torch.from_numpy(np.where(there, values, 0.0)).to(draw(st.sampled_from(TYPES)))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    words = WORDS[one.dtype.itemsize]
    return one.dtype == other.dtype and torch.equal(one.view(words), other.view(words))


def decoded(message: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = torch.zeros_like(like)
    decode(message, found)
    return found


@given(rows(), st.sampled_from(["auto", "sparse"]))
def test_what_arrives_is_what_was_sent_in_the_fewest_bytes(x, form):
    message = encoded(x, form)
    assert same_bits(decoded(message, x), x)
    k, width = x.shape
    bits = x.view(WORDS[x.dtype.itemsize])
    there = bits[bits != 0]
    kept = (1 if len(there) and (there == there[0]).all() else len(there)) * x.dtype.itemsize
    sizes = [2 * (k + len(there)) + kept, k * -(-width // 8) + kept]
    sizes += [k * width * x.dtype.itemsize] if form == "auto" else []
    assert len(message) == 1 + min(sizes)


def test_wide_rows_have_wide_ids():
    x = torch.zeros(2, 70_000)
    x[0, 69_999], x[1, 65_535] = 3.0, 4.0
    message = encoded(x, "sparse")
    assert torch.equal(decoded(message, x), x)
    assert len(message) == 1 + 4 * (2 + 2) + 2 * 4


def bag_of_words(graph):
    """The graph with one word in four, once each."""
    words = np.random.default_rng(1).random(graph.features.shape) < 0.25
    return graph.replace(features=words.astype(np.float32))


@pytest.mark.parametrize("name", ["vanilla", "lean", "cagnet", "cdfgnn", "capgnn", "llcg"])
def test_losses_are_the_same_and_the_fetch_is_smaller(pool, name):
    """Also of a run that was stopped, which fetches nothing again."""
    graph = bag_of_words(random_graph(12, vertices=40))
    asked = ({"features_wire": "dense"}, {"features_wire": "auto", "stop_at": 1})
    dense, sparse = (
        systems.run(pool, graph, systems.block(name), 3, settings=Settings(dtype="float32", epochs=3, **more))
        for more in asked
    )
    assert sparse.losses == dense.losses
    fetched = [
        sum(size for (layer, _, kind), (_, size) in run.sent(0).items() if kind in ("features", "lengths"))
        for run in (dense, sparse)
    ]
    assert 0 < fetched[1] < fetched[0]
    assert sparse.sent(1) == dense.sent(1) and not any(key[2] == "lengths" for key in sparse.sent(1))
    assert {k: r for k, (r, _) in sparse.sent(0).items() if k[2] == "features"} == {
        k: r for k, (r, _) in dense.sent(0).items() if k[2] == "features"
    }, "a row is a row in either form"
