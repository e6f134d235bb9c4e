"""Coded sums of gradients: their oracle, their bytes, and what must stay exact."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.core.combine import Combiner, Quantised
from harness.core.draws import draws
from harness.core.topk import TopK
from harness.dev.conformance.checks import same_bits
from harness.dev.conformance.subject import facts_of
from harness.run.config import make, make_system
from tests import jobs, systems
from tests.oracles import combine
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.pieces import COMBINES
from tests.systems import Settings

WIDE = systems.small("sage", 3, 40, dropout=0.4)
QUANTISED = {"_target_": "harness.core.combine.Quantised", "bits": 4}
POWER = {"_target_": "harness.core.combine.PowerSgd", "rank": 2}


@settings(max_examples=8)
@given(bits=st.sampled_from([4, 8]), run=st.fixed_dictionaries({**RUNS, "model": st.sampled_from(OPERATORS)}))
def test_quantised_sums_equal_their_oracle(pool, bits, run):
    """w^ of every epoch, the same on every worker (`systems.run` holds them to that)."""
    name, normalisation = run["model"]
    graph = random_graph(run["seed"], vertices=18, directed=run["directed"])
    model = systems.small(name, run["layers"], normalisation=normalisation)
    how = Settings(model=model, combine={**QUANTISED, "bits": bits}, seed=run["seed"])
    outcome = systems.run(pool, graph, systems.block("vanilla"), run["parts"], settings=how)

    def draw(epoch, worker, count):
        return draws(how.seed, epoch, -1, "backward", worker, (count,), torch.float64).numpy()

    knobs = {"bits": bits, "model": name, "normalisation": normalisation}
    history = systems.history(combine.train, graph, outcome, how, draw, **knobs)
    systems.assert_trained_alike(outcome, history)


def weight_bytes(outcome, epoch: int) -> int:
    return sum(size for (_, _, purpose), (_, size) in outcome.sent(epoch).items() if purpose == "weights")


@pytest.mark.parametrize(
    "name, block",
    [("vanilla", QUANTISED), ("digest", {**QUANTISED, "bits": 8}), ("cdfgnn", POWER)],
    ids=["vanilla, 4", "digest, 8", "cdfgnn, rank 2"],
)
def test_bytes_are_the_closed_form(pool, name, block):
    """Of the weights alone."""
    parts, graph = 3, random_graph(12, vertices=30)
    how = Settings(systems.small("gcn", 3, 7), dtype="float32", epochs=2, combine=block)
    coded = systems.run(pool, graph, systems.block(name), parts, settings=how)
    shapes = [value.shape for value in coded.weights[0].values()]
    matrices, rest = ([s for s in shapes if (len(s) == 2) == two] for two in (True, False))
    others = 4 * sum(s[0] for s in rest)
    if "bits" in block:
        values = sum(r * (-(-c * block["bits"] // 8) + 2) for r, c in matrices)
    else:
        values = 4 * sum(min(r * c, 2 * (r + c)) for r, c in matrices)
    want = 2 * (parts - 1) * (values + others)
    assert weight_bytes(coded, 1) == want


@pytest.mark.parametrize("way", COMBINES)  # of conf/combine: every way but the exact one
def test_each_sends_fewer_bytes_of_weights_the_same_beside_and_goes_on_bit_for_bit(pool, way):
    """From the second epoch on it trains otherwise; every worker has the same weights (`systems.run`)."""
    asked = Settings(model=WIDE, dtype="float32", epochs=6)
    exact, coded, resumed = (
        systems.run(
            pool, random_graph(12, vertices=30), systems.block("vanilla"), 3, settings=replace(asked, **more)
        )
        for more in ({"epochs": 2}, {"combine": COMBINES[way]}, {"combine": COMBINES[way], "stop_at": 4})
    )
    assert 0 < weight_bytes(coded, 1) < weight_bytes(exact, 1)
    assert coded.losses[0] == exact.losses[0] and coded.losses[1] != exact.losses[1]
    halos = [
        {key: size for key, size in run.sent(1).items() if key[2] != "weights"} for run in (exact, coded)
    ]
    assert halos[0] == halos[1]
    assert same_bits(coded, resumed)


def test_a_worker_alone_rounds_nothing(pool):
    graph = random_graph(3, vertices=20)
    exact, *coded = (
        systems.run(pool, graph, systems.block("vanilla"), 1, settings=Settings(model=WIDE, combine=given))
        for given in (None, *COMBINES.values())
    )
    assert all(each.losses == exact.losses for each in coded)


def test_a_model_without_a_matrix_is_summed_exactly():
    vector = torch.nn.Parameter(torch.ones(3))
    assert type(Quantised(bits=4).make([vector], SimpleNamespace(size=2), seed=0)) is Combiner


def test_what_a_low_rank_lacks_is_kept_for_later(pool):
    """The sums and the errors together are all gradients; a sum has the rank, and is the same everywhere."""
    found = pool.run(jobs.sums, 3, POWER)
    for _, made, _ in found[1:]:
        assert all(torch.equal(a, b) for mine, theirs in zip(made, found[0][1]) for a, b in zip(mine, theirs))
    summed = found[0][1]
    gradients = sum(given[t][0] for given, _, _ in found for t in range(3))
    errors = sum(state["errors"][0] for _, _, state in found)
    torch.testing.assert_close(sum(each[0] for each in summed) + errors, gradients)
    for t, (matrix, bias) in enumerate(summed):
        assert torch.linalg.matrix_rank(matrix) == 2
        torch.testing.assert_close(bias, sum(given[t][1] for given, _, _ in found))


def test_the_largest_values_are_sent_and_the_others_kept(pool):
    """u = m + g; its k largest are summed over workers, in the order of ranks, and m keeps the others."""
    block = {"_target_": "harness.core.topk.TopK", "share": 0.1}
    found, n, k = pool.run(jobs.sums, 3, block), 59, 6
    memories = [np.zeros(n) for _ in found]
    for t in range(3):
        want = np.zeros(n)
        for worker, (drawn, _, _) in enumerate(found):
            u = memories[worker] + np.concatenate([g.numpy().ravel() for g in drawn[t]])
            largest = np.argsort(-np.abs(u))[:k]
            want[largest] += u[largest]
            u[largest] = 0
            memories[worker] = u
        for _, made, _ in found:
            np.testing.assert_array_equal(np.concatenate([g.numpy().ravel() for g in made[t]]), want)
    for memory, (_, _, state) in zip(memories, found):
        np.testing.assert_array_equal(state["memory"].numpy(), memory)


def test_a_share_of_a_tenth_is_three_of_thirty_values():
    vector = torch.nn.Parameter(torch.ones(30))
    assert TopK(share=0.1).make([vector], SimpleNamespace(size=2), seed=0).count == 3


def test_a_way_of_its_own_is_refused():
    facts = replace(facts_of("gcn"), combine="quantised")
    for name in ("llcg", "digest_a"):
        reason = make_system(systems.block(name)).supports(facts)
        assert reason and "combine=quantised cannot be" in reason and reason.endswith("give combine=exact")
    weights = systems.block("digest", aggregate="weights")
    assert "combine=exact or system.aggregate=gradients" in make_system(weights).supports(facts)
    for name in ("digest", "vanilla", "sancus", "cdfgnn"):
        assert make_system(systems.block(name)).supports(facts) is None


def two_sums(comm, block):
    """What sums of three epochs give trained parameters: of gradients with a share, then of gradients times
    it."""
    comm = Comm(comm.rank, comm.size, comm.device, Recorder(), comm.transport)
    told = []
    for outside in (False, True):
        generator = torch.Generator().manual_seed(comm.rank)
        weights = [torch.nn.Parameter(torch.zeros(*shape).double()) for shape in ((9, 6), (5,))]
        combiner, made = make("combine", block).make(weights, comm, 3), []
        for epoch in range(3):
            combiner.begin(epoch)
            given = [torch.randn(w.shape, generator=generator).double() for w in weights]
            if outside:
                given = [0.25 * g for g in given]
            combiner.sum(given, *(() if outside else (0.25,)))
            made += [w.grad if w.grad is not None else g for w, g in zip(combiner.trained, given)]
        told.append([each.clone() for each in made])
    return told


@pytest.mark.parametrize("way", COMBINES)
def test_a_share_is_a_factor_of_every_gradient(pool, way):
    block = {**COMBINES[way], **({"rank": 2} if way == "powersgd" else {})}
    for within, before in pool.run(two_sums, 3, block):
        assert all(torch.equal(a, b) for a, b in zip(within, before, strict=True))
