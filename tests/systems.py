"""What every system's tests inherit: the variants they run over and how a run is asked for.

A new yaml in `conf/system/` must be named in `tests/variants/`, with the knobs at which it is exact, or
`test_every_system_is_tested` fails.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import yaml

from harness.graph.csr import from_edges
from harness.graph.graph import Graph, validate
from harness.partition.assign import assign
from harness.partition.build import build_shards
from harness.partition.build_replicas import build_replicas
from harness.partition.config import EDGE_METHODS
from harness.partition.vertexcut import EdgeAssignment, assign_edges
from harness.run.config import make_system
from tests import jobs, variants
from tests.pool import MEMORY

CONF = Path(__file__).resolve().parent.parent / "conf" / "system"


def _collect(table: str) -> list:
    return [(module, getattr(module, table)) for module in MODULES if hasattr(module, table)]


MODULES = [
    importlib.import_module(f"tests.variants.{m.name}") for m in pkgutil.iter_modules(variants.__path__)
]
EXACT: dict[str, list[dict] | dict | None] = {
    name: knobs for _, table in _collect("EXACT") for name, knobs in table.items()
}
EXACT_VARIANTS = [
    (name, knobs) for name, settings in EXACT.items() if isinstance(settings, list) for knobs in settings
]
SINGLE_VARIANTS = [(name, knobs or {}) for name, knobs in EXACT.items() if not isinstance(knobs, list)]
STALE_VARIANTS = [variant for _, table in _collect("STALE") for variant in table]
# The first of a system's variants in every run of the suite, the others at night.
CONTROL_VARIANTS = [
    pytest.param(variant, marks=pytest.mark.nightly(20)) if number else variant
    for _, table in _collect("CONTROL")
    for number, variant in enumerate(table)
]
PARTITIONS = [(1, "block"), (2, "metis"), (3, "random"), (4, "block")]


def models_of(name: str) -> list[str]:
    """The models a system supports."""
    return getattr(_variants(name), "MODELS", ["gcn", "sage"])


def partitions_of(name: str) -> list[tuple[int, str]]:
    """Workers and partition methods over which a system's exact knob is tried."""
    methods = getattr(_variants(name), "METHODS", None)
    if methods is None:
        return PARTITIONS
    return [(parts, methods[at % len(methods)]) for at, (parts, _) in enumerate(PARTITIONS)]


def _variants(name: str):
    return importlib.import_module(f"tests.variants.{name.split('/')[0]}")


def block(name: str, **knobs) -> dict:
    """The config block of a system, from its yaml, with knobs changed."""
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    values.pop("defaults", None)  # Hydra's
    assert set(knobs) <= set(values), f"{name} has no knob {set(knobs) - set(values)}"
    return {**values, **knobs}


def label(variant) -> str:
    name, knobs = variant
    return "-".join([name, *(f"{k}={v}" for k, v in knobs.items())])


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
) -> Outcome:
    """Train on `assignment`, or on a partition by `method`: by default one of the kind that the system trains
    on.
    """
    s = settings or Settings()
    method = method or {"edge": "random", "vertex": "ebv"}[make_system(system).cut]
    if assignment is None:
        assignment = (assign_edges if method in EDGE_METHODS else assign)(graph, method, parts, s.seed)
    shards = shards_of(graph, assignment, parts)
    answers = pool.run(
        jobs.train,
        parts,
        system,
        s.model,
        s.optimiser,
        s.seed,
        s.epochs,
        s.dtype,
        s.stop_at,
        s.scored,
        s.cluster,
        per_worker=shards,
        transport=transport,
    )
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
    if isinstance(assignment, EdgeAssignment):
        return list(build_replicas(graph, assignment))
    return list(build_shards(graph, assignment.astype(np.int32), parts))


def assert_trained_alike(outcome: Outcome, history, rtol: float = 1e-5) -> None:
    """Losses and weights of every epoch equal an oracle's."""
    np.testing.assert_allclose(outcome.losses, history.losses, rtol=rtol)
    for after, want in zip(outcome.weights[1:], history.weights_after):
        for name in want:
            np.testing.assert_allclose(after[name], want[name], rtol=rtol, atol=1e-8, err_msg=name)


def planted_graph(
    seed: int, *, vertices: int = 900, classes: int = 5, features: int = 64, degree: int = 16
) -> Graph:
    """A symmetric graph whose vertices say little of their class by themselves and much through their
    neighbours.

    90 % of edges join vertices of one class; features are the class's unit direction drowned in noise of four
    times its length in every dimension; 20 training vertices a class.
    """
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, vertices).astype(np.int32)
    source = rng.integers(0, vertices, vertices * degree // 2)
    same = np.array([rng.choice(np.flatnonzero(labels == c)) for c in labels[source]])
    target = np.where(rng.random(len(source)) < 0.9, same, rng.integers(0, vertices, len(source)))
    edges = from_edges(
        source.astype(np.int32), target.astype(np.int32), vertices, symmetrise=True, self_loops=False
    )
    directions = np.linalg.qr(rng.standard_normal((features, classes)))[0].T
    x = directions[labels] + 4 * rng.standard_normal((vertices, features))
    train = np.zeros(vertices, bool)
    for c in range(classes):
        train[rng.choice(np.flatnonzero(labels == c), 20, replace=False)] = True
    val = ~train & (rng.random(vertices) < 0.3)
    return validate(
        Graph(
            "planted",
            edges.indptr,
            edges.indices,
            x.astype(np.float32),
            labels,
            classes,
            train,
            val,
            ~train & ~val,
            True,
        )
    )
