"""LLCG equals its paper's rounds, on random graphs; its bytes in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from systems.llcg import Llcg
from tests import systems
from tests.graphs import random_graph as larger_graph
from tests.oracles import bytes as count
from tests.oracles import dense, llcg
from tests.oracles.samples import (
    OPERATORS,
    RUNS,
    assert_same_run,
    random_graph,
    random_weights,
)
from tests.oracles.split import blocks_of
from tests.systems import Settings

KNOBS = {
    "local_steps": st.integers(1, 4),
    "server_steps": st.integers(0, 3),
    "batch": st.sampled_from([1, 3, 5, 256]),
    "server_lr": st.sampled_from([None, 0.003, 0.05]),
    "features": st.sampled_from(["once", "refetch"]),
}
CASES = {**RUNS, "model": st.sampled_from(OPERATORS)}


def drawer(graph, assignment: np.ndarray, batch: int, seed: int):
    """What the system's workers draw, each for itself, as positions in the ascending list of all training
    vertices.
    """
    mine = [rows[graph.train[rows]] for rows in blocks_of(assignment)]
    workers = []
    for rank, rows in enumerate(mine):
        worker = Llcg(batch=batch)
        worker.seed, worker.device, worker.counts = seed, torch.device("cpu"), [len(rows) for rows in mine]
        worker.comm = type("Rank", (), {"rank": rank})
        # global ids where it has local ones
        worker.context = type("Context", (), {"train_rows": torch.from_numpy(rows)})
        workers.append(worker)

    def draw(epoch, step, total, size):
        rows = torch.cat([worker.mini_batch(epoch, step) for worker in workers]).numpy()
        return np.searchsorted(np.flatnonzero(graph.train), rows)

    return draw


@settings(max_examples=15)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(CASES))
def test_llcg_equals_its_oracle(pool, knobs, run):
    name, normalisation = run["model"]
    graph = random_graph(run["seed"], vertices=18, directed=run["directed"])
    how = Settings(
        model=systems.small(name, run["layers"], normalisation=normalisation),
        epochs=5,
        seed=run["seed"],
    )
    outcome = systems.run(pool, graph, systems.block("llcg", **knobs), run["parts"], settings=how)
    draw = drawer(graph, outcome.assignment, knobs["batch"], run["seed"])
    systems.assert_trained_alike(
        outcome,
        systems.history(
            llcg.train,
            graph,
            outcome,
            how,
            draw,
            **{k: v for k, v in knobs.items() if k != "features"},
            model=name,
            normalisation=normalisation,
        ),
    )


def test_every_correction_step_draws_a_batch_of_its_own_from_all_training_vertices():
    graph = larger_graph(400, 2)
    total = int(graph.train.sum())
    draw = [drawer(graph, np.arange(400) % 3, batch=20, seed=seed) for seed in (5, 6)]
    batches = [draw[i](epoch, step, total, 20) for i in (0, 1) for epoch in range(20) for step in range(3)]
    assert len({tuple(sorted(batch)) for batch in batches}) == len(batches)
    # 2400 draws of about 200 positions: all are drawn, none much more often than the others.
    often, mean = np.bincount(np.concatenate(batches), minlength=total), 2400 / total
    assert 10 < mean < 14 and often.min() > 0 and often.max() < mean + 6 * mean**0.5


def test_corrections_alone_are_full_graph_training():
    """Without a local learning rate and with every training vertex in the batch, S corrections a round are S
    epochs.
    """
    graph, weights, how = random_graph(3), random_weights(4, "sage"), dict(model="sage", weight_decay=0.01)
    run = llcg.train(
        graph,
        np.arange(graph.num_vertices) % 3,
        weights,
        lambda r, s, total, size: np.arange(total),
        local_steps=2,
        server_steps=3,
        batch=100,
        server_lr=0.02,
        epochs=4,
        lr=0.0,
        **how,
    )
    want = dense.train(graph, weights, epochs=12, lr=0.02, **how)
    run.losses, want.losses = [loss for losses in run.corrections for loss in losses], want.losses
    assert_same_run(run, want)


@pytest.mark.parametrize("features", ["once", "refetch"])
def test_bytes_are_one_average_and_an_exact_exchange_per_correction(pool, features):
    """K costs nothing. An all-reduce of n values over P workers moves 2 (P - 1) n of them."""
    graph = random_graph(12, vertices=40)
    how = Settings(model=systems.small("gcn", 3, 6), dtype="float32", epochs=3)
    steps = 2
    outcome = systems.run(
        pool,
        graph,
        systems.block("llcg", local_steps=3, server_steps=steps, batch=4, features=features),
        4,
        settings=how,
    )
    values = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(3):
        want = count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)[
            "bytes"
        ]
        sent = {"weights": 0, "forward": np.zeros(3, int), "backward": np.zeros(3, int)}
        for (layer, way, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose == "weights":
                sent["weights"] += size
            else:
                sent[way][layer] += size
        assert sent["weights"] == 2 * 3 * values * 4 * (1 + steps)
        repeated = np.array([1 if features == "once" else steps, steps, steps])
        for way in ("forward", "backward"):
            np.testing.assert_array_equal(sent[way], want[way] * repeated)
