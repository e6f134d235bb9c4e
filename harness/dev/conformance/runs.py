"""Small training runs on pooled workers, for checks of what a system does. What workers do are functions of
(comm, ...) that are importable there."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from harness.base.errors import typed
from harness.comm.comm import Comm
from harness.comm.watched import Watched
from harness.core.cluster import Cluster
from harness.core.mixins import evaluation_weights
from harness.core.trainer import Trainer
from harness.data.csr import from_edges
from harness.data.graph import Graph, validate
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.config import EDGE_METHODS
from harness.data.partition.vertexcut import EdgeAssignment, assign_edges
from harness.dev.conformance.pool import MEMORY
from harness.run.config import NULL, make, make_system


@dataclass
class Settings:
    """A small run; float64 where results are compared with an oracle."""

    model: dict = field(default_factory=lambda: {"name": "gcn", "layers": 2, "hidden": 4, "dropout": 0.0})
    optimiser: dict = field(default_factory=lambda: {"lr": 0.01, "weight_decay": 5e-4})
    epochs: int = 5
    seed: int = 3
    dtype: str = "float64"
    stop_at: int | None = None
    scored: str = "at the end"  # or after "every epoch"
    cluster: dict | None = None  # None: devices that are all alike
    rows: str | None = None  # "all" or "needed"; None: the system's own choice
    features_wire: str | None = None  # "auto", "dense" or "sparse"; None: the system's own choice
    combine: dict | None = None  # the block of that name; None: the system's own choice
    straggler: dict | None = None  # the block of that name; None: no worker is slowed down
    labels: dict | None = None  # the block of that name; None: no vertex shows its label


def make_trainer(comm, block, how: Settings, shard, kernel="numba") -> Trainer:
    """The trainer of a worker, as a run makes it, for the system of a config block."""
    return Trainer(
        shard,
        comm,
        make_system(block),
        make("model", how.model),
        make("optimiser", how.optimiser),
        seed=how.seed,
        epochs=how.epochs,
        kernel=kernel,
        cluster=typed(Cluster, how.cluster, "cluster") if how.cluster else None,
        rows=how.rows,
        features_wire=how.features_wire,
        **{name: make(name, getattr(how, name) or {}) for name in NULL},
    )


def train(comm, block, how: Settings, shard) -> dict[str, list]:
    """Train and report each epoch: `losses`, `weights` (those before the first too), `sent`, `metrics`,
    `spans` (with the epoch's seconds) and, where scored, `scores`. Before epoch `stop_at` the trainer is
    replaced by a new one, which loads its state dict."""
    torch.set_default_dtype(getattr(torch, how.dtype))
    try:
        trainer = make_trainer(comm, block, how, shard)
        found: dict[str, list] = {
            name: [] for name in ("losses", "weights", "sent", "metrics", "spans", "scores")
        }
        found["weights"].append(snapshot(trainer))
        for epoch in range(how.epochs):
            if epoch == how.stop_at:
                state = trainer.state_dict()
                # a server may end with worker 0, and others still be asking it for their state
                comm.barrier()
                trainer.closing.close()
                trainer = make_trainer(comm, block, how, shard)
                trainer.load_state_dict(state)
            local = trainer.train_epoch(epoch)
            record = comm.recorder.epoch
            found["losses"].append(trainer.global_loss(local))
            found["weights"].append(snapshot(trainer))
            if how.scored == "every epoch" or epoch == how.epochs - 1:
                found["scores"].append(trainer.evaluate().accuracy)
            found["sent"].append({key: tuple(value) for key, value in record.sent.items()})
            found["metrics"].append(dict(record.metrics))
            found["spans"].append((record.train, record.spans))
        trainer.closing.close()
        comm.drain()
        return found
    finally:
        torch.set_default_dtype(torch.float32)


def snapshot(trainer) -> dict[str, np.ndarray]:
    """A copy of the weights, by name, that an evaluation at this moment would use."""
    with evaluation_weights(trainer.system, trainer.recorder.epoch.epoch):
        return {name: value.detach().numpy().copy() for name, value in trainer.model.named_parameters()}


def train_watched(comm, *given) -> dict:
    """`train`, and beside it `handed`: by epoch the bytes that the training thread handed to the transport,
    counted there. InputError where a system moves data past it."""
    watched = Watched(comm.transport, comm.rank, comm.size, comm.recorder)
    with watched.alone():
        made = train(Comm(comm.rank, comm.size, comm.device, comm.recorder, watched), *given)
    return {**made, "handed": dict(watched.handed)}


@dataclass
class Outcome:
    """What the workers answered; `weights[e]` are those before epoch e, equal on every worker (checked)."""

    losses: list[float]
    weights: list[dict[str, np.ndarray]]
    scores: list[tuple[float, float, float]]
    workers: list[dict]
    assignment: np.ndarray | EdgeAssignment
    widths: list[int]

    def sent(self, epoch: int) -> dict[tuple[int, str, str], tuple[int, int]]:
        """(layer, direction, purpose) -> rows and bytes of all workers together."""
        total: dict[tuple[int, str, str], tuple[int, int]] = {}
        for worker in self.workers:
            for (layer, direction, purpose, _), (rows, size) in worker["sent"][epoch].items():
                have = total.get((layer, direction, purpose), (0, 0))
                total[layer, direction, purpose] = (have[0] + rows, have[1] + size)
        return total


def run(
    pool,
    graph: Graph,
    system: dict,
    parts: int,
    method: str | None = None,
    settings: Settings | None = None,
    assignment: np.ndarray | EdgeAssignment | None = None,
    transport: str = MEMORY,
    job: Callable[..., dict] = train,
) -> Outcome:
    """Train on `assignment`, or on a partition by `method` (default: of the kind that the system takes)."""
    s = settings or Settings()
    method = method or {"edge": "random", "vertex": "ebv"}[make_system(system).cut]
    if assignment is None:
        assignment = (assign_edges if method in EDGE_METHODS else assign)(graph, method, parts, s.seed)
    shards = shards_of(graph, assignment, parts)
    answers = pool.run(job, parts, system, s, per_worker=shards, transport=transport)
    first = answers[0]
    for other in answers[1:]:
        assert other["losses"] == first["losses"] and other["scores"] == first["scores"]
        for mine, theirs in zip(first["weights"], other["weights"]):
            assert all(np.array_equal(mine[name], theirs[name]) for name in mine), (
                "workers' weights drifted apart"
            )
    widths = [graph.num_features] + [s.model["hidden"]] * (s.model["layers"] - 1) + [graph.num_classes]
    return Outcome(first["losses"], first["weights"], first["scores"], answers, assignment, widths)


def shards_of(graph: Graph, assignment: np.ndarray | EdgeAssignment, parts: int) -> list:
    """The workers' shards, in order of rank, of an edge-cut's owners or of a vertex-cut's edges."""
    if isinstance(assignment, EdgeAssignment):
        return list(build_replicas(graph, assignment))
    return list(build_shards(graph, assignment.astype(np.int32), parts))


def planted_graph(
    seed: int,
    *,
    vertices: int = 900,
    classes: int = 5,
    features: int = 64,
    degree: int = 16,
    train_each: int = 20,
) -> Graph:
    """A symmetric graph whose vertices say little of their class by themselves and much through their
    neighbours.

    90 % of edges join vertices of one class; features are the class's unit direction drowned in noise of four
    times its length in every dimension; `train_each` training vertices per class.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, vertices).astype(np.int32)
    source = rng.integers(0, vertices, vertices * degree // 2)
    members = [np.flatnonzero(labels == c) for c in range(classes)]
    same = np.array([members[c][rng.integers(len(members[c]))] for c in labels[source]])
    target = np.where(rng.random(len(source)) < 0.9, same, rng.integers(0, vertices, len(source)))
    edges = from_edges(
        source.astype(np.int32), target.astype(np.int32), vertices, symmetrise=True, self_loops=False
    )
    directions = np.linalg.qr(rng.standard_normal((features, classes)))[0].T
    x = directions[labels] + 4 * rng.standard_normal((vertices, features))
    train = np.zeros(vertices, bool)
    for c in range(classes):
        train[rng.choice(np.flatnonzero(labels == c), train_each, replace=False)] = True
    val = ~train & (rng.random(vertices) < 0.3)
    masks, x = (train, val, ~train & ~val), x.astype(np.float32)
    return validate(Graph("planted", edges.indptr, edges.indices, x, labels, classes, *masks, True))
