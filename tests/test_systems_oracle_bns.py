"""BNS-GCN's draws, and the product over what is drawn."""

import itertools

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.adjacency import Adjacency
from harness.core.kernels.spmm import make_kernel
from harness.core.propagate import HaloDropout
from harness.data.partition.build import build_shards
from systems.bns import Bns
from systems.parts.sampling import HaloSampler
from tests.oracles import bns, split
from tests.oracles.samples import random_blocks, random_graph, with_edge_weights


def drawer(rate: float, seed: int):
    """What the system draws, which the oracle then reads."""
    system = Bns(rate=rate)
    system.seed, system.device = seed, torch.device("cpu")
    return lambda epoch, receiver, owner, boundary, _: system.sample(epoch, receiver, owner, boundary).numpy()


def test_every_pair_of_workers_draws_anew_in_every_epoch():
    which = itertools.product((3, 4), (0, 1, 9), (0, 1, 2), (0, 1, 2))  # seed, epoch, receiver, owner
    samples = [
        tuple(drawer(0.5, seed)(epoch, receiver, owner, 60, 30)) for seed, epoch, receiver, owner in which
    ]
    assert len(set(samples)) == len(samples) and {len(sample) for sample in samples} == {30}


@settings(max_examples=3)
@given(seed=st.integers(0, 2**40), parts=st.integers(2, 4), model=st.sampled_from(["gcn", "sage"]))
def test_the_mean_operator_is_the_exact_one(seed, parts, model):
    """E R_t = R: 1000 draws of about half the rows, to six standard errors of an entry's mean."""
    graph = random_graph(seed, vertices=18)
    case = split.Training(graph, random_blocks(seed, 18, parts), {}, model=model, epochs=0, lr=0.0)
    draw, draws = drawer(0.5, seed), 1000
    total = sum(bns.sampled(case, 0.5, lambda *pair, t=t: draw(t, *pair)) for t in range(draws))
    mean, remote = total / draws, case.remote
    # An entry's variance is R^2 (m / k - 1), and halves of 1, 2, ... rows are never rounded below 2 of 5.
    assert (np.abs(mean - remote) <= 6 * np.sqrt(1.5 / draws) * remote).all()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    width=st.integers(1, 20),
    weighted=st.booleans(),
    normalisation=st.sampled_from(["symmetric", "row", "mean"]),
)
def test_the_product_over_drawn_columns_is_the_one_over_rows_of_zeros(
    seed, share, width, weighted, normalisation
):
    """Bit for bit, forward and backward: sums keep their order, and adding 0 changes none."""
    rng = np.random.default_rng(seed)
    graph = random_graph(int(rng.integers(10_000)), vertices=30)
    graph = with_edge_weights(graph, 1) if weighted else graph
    shard = next(build_shards(graph, rng.integers(0, 2, 30).astype(np.int32), 2))
    full = Adjacency(shard, normalisation, make_kernel("numba"), torch.device("cpu"))
    if full.halo is None:
        return
    where = torch.from_numpy(np.flatnonzero(rng.random(shard.num_halo) < share))
    drawn = HaloSampler(full, shard).propagation(where)
    x = torch.from_numpy(rng.standard_normal((shard.num_halo, width)).astype(np.float32))
    zeros = torch.zeros_like(x)
    zeros[where] = x[where]
    assert drawn.halo.forward(x[where]).equal(full.halo.forward(zeros))
    g = torch.from_numpy(rng.standard_normal((shard.num_inner, width)).astype(np.float32))
    assert drawn.halo.adjoint(g).equal(full.halo.adjoint(g)[where])
    kept = np.isin(shard.halo_edges.indices, where.numpy()).sum()
    assert drawn.num_entries == full.inner.num_entries + kept
    assert (drawn.num_halo, drawn.drawn.tolist()) == (len(where), where.tolist())
    drop = HaloDropout(0.5, torch.from_numpy(shard.inner), torch.from_numpy(shard.halo), seed)
    assert drop.halo(x[where], drawn.drawn).equal(drop.halo(x)[where])
