"""The batches that LLCG draws, and its corrections alone."""

import numpy as np
import torch

from systems.llcg import Llcg
from tests.graphs import random_graph as larger_graph
from tests.oracles import dense, llcg
from tests.oracles.samples import assert_same_run, random_graph, random_weights
from tests.oracles.split import blocks_of


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
