"""What a worker holds at its peak, in bytes; docs/howto/plan.md derives each line.

With n rows taken, r given, m halo rows, s rows sent, E entries, f_in and f_out the widths of a layer; a value
has 4 bytes. Of layer 0 under `features=once` the product A X is kept instead of the halo's rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from harness.core.config import ModelConfig
from harness.core.system import AnySystem
from harness.core.traffic import FLOAT, Key, Parts, Traffic
from harness.plan.loads import Layer, Loads, sparse_features
from harness.plan.sizes import shapes_of

# Of a worker's process that has trained on next to nothing, measured: Linux on x86-64, CPython 3.11, torch's
# build for the CPU.
PROCESS = 335e6
CONTEXT = 500e6  # of a CUDA context with its libraries' code and workspaces; assumed
INDEX = 4
COPIES = 5  # of each of the model's values: itself, its gradient, two moments, and what is summed


def held(
    loads: Loads,
    parts: Parts,
    model: ModelConfig,
    system: AnySystem,
    epochs: Sequence[Traffic],
    place: str,
) -> dict[str, np.ndarray]:
    """By what it is for, [P] bytes of each worker's memory: of its process on the CPU, or of a GPU's.

    epochs   what is sent in the run's epochs, the first among them
    place    "cuda"; "cpu"; or "memory" where workers on the CPU exchange through memory that they share
    """
    f0, on_cpu, shares = loads.widths[0], place != "cuda", place == "memory"
    once, first = system.features == "once", loads.layers[0]
    rows = loads.vertices if parts.shards else first.taken  # replicas, of a vertex-cut
    made = {"process": np.full(loads.workers, PROCESS if on_cpu else CONTEXT)}
    made["graph"] = _graph(loads, on_cpu)
    made["features"] = FLOAT * rows * f0 + 16 * loads.vertices + 3 * loads.vertices
    rows_only = not model.matrix or model.input_dropout > 0  # then the halo's rows are kept, and no A X
    static = FLOAT * f0 * loads.halo if rows_only else _static(loads, rows, first.given, on_cpu)
    made["layer 0"] = static if once else static + FLOAT * f0 * first.halo
    own_graph = parts.kept is not None or loads.local
    halved = parts.value != FLOAT
    corrected = loads.local and any(key[2] == "halo" for each in epochs for key in each.most)
    # Whether evaluation, which is exact and of the whole graph, has a static layer 0 of its own.
    own_static = once and (own_graph or not system.exact_input or (halved and bool(parts.shards)))
    if own_static:
        whole = FLOAT * f0 * loads.halo if rows_only else _static(loads, rows, rows, on_cpu)
        made["evaluation"] = whole * (1 + corrected) + (_graph(loads, on_cpu) if own_graph else 0)
    if parts.kept is not None:
        # Each layer has the rows that it needs, in both directions, and layer 0 a copy of their features.
        entry = INDEX if on_cpu else INDEX + FLOAT
        made["graph"] = sum(
            (2 * entry * (of.inner_entries + of.halo_entries) for of in loads.layers), made["graph"] * 0
        )
        made["features"] = made["features"] + FLOAT * f0 * first.taken
        # A layer of evaluation has more rows than the places that training leaves: Z, and what follows it.
        made["evaluation"] = made.get("evaluation", 0) + 2 * FLOAT * rows * max(loads.widths[1:])
    layers = loads.layers
    if corrected:
        # Trained without the halo, and corrected by steps that have it.
        layers = [dataclasses.replace(of, halo=loads.halo, sent=loads.sent) for of in layers]
    # Rows that arrive forwards and gradients that do backwards; packed rows too, unless they lie in memory
    # that is shared.
    sides = 1 if shares else 2
    made["halo rows"] = sum(
        (FLOAT * f * (of.halo + sides * of.sent) for of, f in zip(layers[1:], loads.widths[1:])),
        np.zeros(loads.workers),
    )
    made["activations"] = _activations(layers, loads.widths)
    values = sum(float(np.prod(shape)) for shape in shapes_of(model, loads.widths))
    made["weights"] = np.full(loads.workers, COPIES * FLOAT * values)
    made["caches"] = system.held(parts)
    made["shared"] = _reused(epochs, once) if shares else np.zeros(loads.workers)
    on_host = system.held_on_host(parts) if on_cpu else np.zeros(loads.workers)
    made["shared"] = made["shared"] + on_host
    # Training's peak is the sum so far. Layer 0 is fetched before it, while there is nothing for evaluation
    # yet, and for evaluation after it; what that took is given back each time.
    training = most = made["halo rows"] + made["activations"] + made["caches"] + made["shared"]
    if once:
        fetching = _fetched(epochs, loads, parts, shares)
        before = system.held_before(parts) + on_host - made.get("evaluation", 0)
        most = np.maximum(training, before + fetching)
    if own_static:
        # What training has freed lies in pieces, none of them long enough for what arrives.
        most = np.maximum(most, training + FLOAT * f0 * ((1 + shares) * loads.halo + loads.sent))
    made["fetching"] = most - training
    return made


def _static(loads: Loads, rows: np.ndarray, given: np.ndarray, on_cpu: bool) -> np.ndarray:
    """[P] bytes of A X over rows given; of X and the halo's features where they are kept sparse."""
    dense = FLOAT * given * loads.widths[0]
    if not on_cpu:
        return dense
    sparse = np.array([sparse_features(loads, worker, given) for worker in range(loads.workers)])
    whole = loads.nonzero * (1 + loads.layers[0].halo / np.maximum(rows, 1))
    return np.where(sparse, 2 * (FLOAT + INDEX) * whole, dense)


def _fetched(epochs: Sequence[Traffic], loads: Loads, parts: Parts, shares: bool) -> np.ndarray:
    """[P] bytes while layer 0's features are fetched: what is sent and what arrives, both also in memory that
    is shared (`shares`), and the rows that are made of what arrives: of coded blocks all of theirs, of a
    vertex-cut the replicas', and the halo's where blocks, coded rows or halved ones arrive."""
    found, row = np.zeros(loads.workers), FLOAT * loads.widths[0]
    coded, blocks = parts.features_wire != "dense", any(k[2] == "blocks" for t in epochs for k in t.most)
    for key, sent in epochs[0].most.items():
        if key[2] == "features":
            written, read = _touched(sent, epochs[0].route[key])
            found = found + written + (1 + shares) * read
            if coded or blocks or parts.value != FLOAT:
                found = found + row * loads.layers[0].halo
            if not parts.shards:  # a vertex-cut's replicas have parts of A X, which are summed in a copy
                found = found + row * loads.layers[0].taken
            if coded and blocks:
                found = found + row * (loads.vertices.sum() - loads.vertices)
    return found


def _reused(epochs: Sequence[Traffic], once: bool) -> np.ndarray:
    """[P] bytes of the shared memory that a worker writes what it sends to, and of that which it reads from.

    A place is used again by whatever else has a length between the same powers of two, once nobody reads it
    any more: what is only waited for in the next epoch keeps its own. Features fetched once keep none.
    """
    largest: dict[Key, np.ndarray] = {}
    for traffic in epochs:
        for key, sent in traffic.most.items():
            if once and key[2] == "features":
                continue
            largest[key] = np.maximum(largest.get(key, 0), sent)
    routes = {key: traffic.route[key] for traffic in epochs for key in traffic.route}
    ahead = set().union(*(traffic.ahead for traffic in epochs))
    found = np.zeros(epochs[0].workers if epochs else 1)
    for side in (0, 1):
        for worker in range(len(found)):
            places: dict[object, float] = {}
            for key, sent in largest.items():
                size = float(_touched(sent, routes[key])[side][worker])
                if size:
                    place = key if key in ahead else math.ceil(math.log2(size))
                    places[place] = max(places.get(place, 0.0), size)
            found[worker] += sum(places.values())
    return found


def _touched(sent: np.ndarray, route: str) -> tuple[np.ndarray, np.ndarray]:
    """[P] bytes that each worker writes for others, and that it reads of theirs, of an operation's bytes
    [P, P + 1] as they are counted."""
    workers = len(sent)
    pairs = sent[:, :workers]
    if route == "ring":
        size = pairs.sum() / max(1, 2 * (workers - 1))
        return np.full(workers, size), np.full(workers, size * (workers - 1))
    if route in ("own", "take", "server"):  # of a store or a tier, which is counted as a whole
        return np.zeros(workers), np.zeros(workers)
    return pairs.max(1) if route == "broadcast" else pairs.sum(1), pairs.sum(0)


def _graph(loads: Loads, on_cpu: bool) -> np.ndarray:
    """Compressed rows in both directions, and the scales. On a GPU entries have values beside indices."""
    entry = INDEX if on_cpu else INDEX + FLOAT
    n, m = loads.vertices, loads.halo
    inner = entry * loads.inner_entries + INDEX * n
    halo = 2 * entry * loads.halo_entries + INDEX * (n + m)
    ids = INDEX * (n + m) + FLOAT * (2 * n + 2 * m)
    return inner * (1 if loads.symmetric else 2) + halo + ids


def _activations(layers: Sequence[Layer], widths: Sequence[int]) -> np.ndarray:
    """Rows that the forward pass keeps, and the most that the backward pass of one layer adds to them."""
    kept, more = np.zeros(len(layers[0].given)), np.zeros(len(layers[0].given))
    for number, of in enumerate(layers):
        f_in, f_out = widths[number : number + 2]
        # Z, Z + b, and what the activation makes of it.
        kept = kept + FLOAT * 3 * of.given * f_out
        back = FLOAT * 2 * of.given * f_out
        if number:
            # The input and the halo after dropout, and their products with W.
            kept = kept + FLOAT * (of.taken + 2 * of.halo) * f_in + FLOAT * (of.taken + of.halo) * f_out
            back = back + FLOAT * (2 * of.taken + of.halo) * f_in + FLOAT * (of.taken + of.halo) * f_out
        more = np.maximum(more, back)
    return kept + more
