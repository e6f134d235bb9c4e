"""What a worker holds at its peak, in bytes; docs/howto/plan.md derives each line.

With n rows taken, r given, m halo rows, s rows sent, E entries, f_in and f_out the widths of a layer; a value
has 4 bytes. Of layer 0 under `features=once` the product A X is kept instead of the halo's rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.core.traffic import FLOAT, Parts
from harness.plan.loads import Loads, sparse_features

# Of a worker's process that has trained on next to nothing, measured: Linux on x86-64, CPython 3.11, torch's
# build for the CPU.
PROCESS = 335e6
CONTEXT = 500e6  # of a CUDA context with its libraries' code and workspaces; assumed
INDEX = 4
COPIES = 5  # of each of the model's values: itself, its gradient, two moments, and what is summed


def held(
    loads: Loads,
    parts: Parts,
    shapes: Sequence[Sequence[int]],
    caches: np.ndarray,
    features: str,
    device: str,
) -> dict[str, np.ndarray]:
    """By what it is for, [P] bytes of each worker's memory: of its process on the CPU, or of a GPU's.

    caches   what the system keeps beside (`System.held`)
    features "once" or "refetch"
    device   "cpu" or "cuda"
    """
    f0, on_cpu = loads.widths[0], device == "cpu"
    n, m, s = loads.vertices, loads.halo, loads.sent
    rows = n if parts.shards else loads.layers[0].taken  # replicas, of a vertex-cut
    made = {"process": np.full(loads.workers, PROCESS if on_cpu else CONTEXT)}
    made["graph"] = _graph(loads, on_cpu)
    made["features"] = FLOAT * rows * f0 + 16 * n + 3 * n
    fetched = FLOAT * f0 * (loads.layers[0].halo + loads.layers[0].sent)
    static, sparse = FLOAT * loads.layers[0].given * f0, np.zeros(loads.workers, bool)
    if on_cpu:
        sparse = np.array([sparse_features(loads, worker) for worker in range(loads.workers)])
        whole = loads.nonzero * (1 + loads.layers[0].halo / np.maximum(rows, 1))
        static = np.where(sparse, 2 * (FLOAT + INDEX) * whole, static)
    made["layer 0"] = fetched + (static if features == "once" else FLOAT * f0 * loads.layers[0].halo)
    if parts.kept is not None or loads.local:
        # Evaluation is of the whole graph, and has a graph and an A X of its own.
        made["evaluation"] = _graph(loads, on_cpu) + FLOAT * f0 * (m + s + n)
    if parts.kept is not None:
        # Each layer has the rows that it needs, in both directions, and layer 0 a copy of their features.
        entry = INDEX if on_cpu else INDEX + FLOAT
        made["graph"] = sum(
            (2 * entry * (of.inner_entries + of.halo_entries) for of in loads.layers), made["graph"] * 0
        )
        made["features"] = made["features"] + FLOAT * f0 * loads.layers[0].taken
    made["halo rows"] = sum(
        (FLOAT * f * (of.halo + 2 * of.sent) for of, f in zip(loads.layers[1:], loads.widths[1:])),
        np.zeros(loads.workers),
    )
    made["activations"] = _activations(loads)
    weights = sum(float(np.prod(shape)) for shape in shapes)
    made["weights"] = np.full(loads.workers, COPIES * FLOAT * weights)
    made["caches"] = caches
    return made


def _graph(loads: Loads, on_cpu: bool) -> np.ndarray:
    """Compressed rows in both directions, and the scales. On a GPU entries have values beside indices."""
    entry = INDEX if on_cpu else INDEX + FLOAT
    n, m = loads.vertices, loads.halo
    inner = entry * loads.inner_entries + INDEX * n
    halo = 2 * entry * loads.halo_entries + INDEX * (n + m)
    ids = INDEX * (n + m) + FLOAT * (2 * n + 2 * m)
    return inner * (1 if loads.symmetric else 2) + halo + ids


def _activations(loads: Loads) -> np.ndarray:
    """Rows that the forward pass keeps, and the most that the backward pass of one layer adds to them."""
    kept, more = np.zeros(loads.workers), np.zeros(loads.workers)
    for number, of in enumerate(loads.layers):
        f_in, f_out = loads.widths[number : number + 2]
        # Z, Z + b, and what the activation makes of it.
        kept = kept + FLOAT * 3 * of.given * f_out
        back = FLOAT * 2 * of.given * f_out
        if number:
            # The input and the halo after dropout, and their products with W.
            kept = kept + FLOAT * (of.taken + 2 * of.halo) * f_in + FLOAT * (of.taken + of.halo) * f_out
            back = back + FLOAT * (2 * of.taken + of.halo) * f_in + FLOAT * (of.taken + of.halo) * f_out
        more = np.maximum(more, back)
    return kept + more
