"""Twins: synthetic graphs calibrated to named real ones. What is planted, and why, is in docs/twins.md."""

from __future__ import annotations

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numba
import numpy as np
import psutil

from harness.base.code import code_in
from harness.base.errors import InputError, at_least, choice, within
from harness.data.graph import Graph, validate
from harness.data.twin_edges import Layout, draw, relabel
from harness.data.twin_specs import SPECS, Spec

CHUNK = 8192  # rows of features drawn from one stream


def names() -> list[str]:
    """The real graphs that have a twin."""
    return list(SPECS)


def identity(name: str) -> dict[str, object]:
    """What determines a twin, as plain values: a hash of the generator's code, and those fields of its `Spec`
    (but `published`) that are not at their defaults. Raises InputError for an unknown name."""
    choice("twin", name, SPECS)
    spec = SPECS[name]
    knobs = {
        f.name: getattr(spec, f.name)
        for f in dataclasses.fields(spec)
        if f.name != "published" and getattr(spec, f.name) != f.default
    }
    generator = [path for path in Path(__file__).parent.glob("twin*.py") if path.stem != "twin_specs"]
    return {"code": code_in(generator), "spec": repr(knobs)}


def generate(name: str, *, scale: float = 1.0, seed: int = 0) -> Graph:
    """The twin of `name`, with round(scale * vertices) vertices at the real graph's mean degree.

    A pure function of (name, scale, seed), bit for bit, whatever the number of threads. Undirected: simple,
    symmetric, without self-loops. Raises InputError for an unknown name, a scale out of range, a graph too
    large for memory."""
    choice("twin", name, SPECS)
    spec = SPECS[name]
    at_least("generator_seed", seed, 0)
    vertices = _scaled(name, spec, scale)
    edges = round(vertices * spec.mean_degree)
    _fits(name, scale, vertices * spec.features * 4 + edges * 12 + vertices * 100)
    # Six independent streams of random numbers, so that what one step draws does not shift the next one's.
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence([seed, sum(name.encode())]).spawn(6)]
    # Edges are drawn between positions, in blocks that are intervals; `position` scatters the ids over them.
    plan = _hierarchy(spec, vertices, streams[0])
    degree, bridge = _degrees(spec, vertices, streams[1])
    layout = Layout(plan.block, plan.first, plan.bounds, len(spec.far), _shares(spec), degree, bridge)
    position = streams[2].permutation(vertices).astype(np.int32)
    indptr, indices = relabel(*draw(layout, edges, int(streams[2].integers(2**63))), position)
    del layout
    # Labels: a vertex has the class (topic) of its leaf community, or, by noise, another one; `look` is the
    # class that its features show.
    leaf = plan.block[-1][position]
    topic, look, confused = _classes(spec, plan, streams[3])
    topic, look, confused = topic[leaf], look[leaf], confused[leaf]
    if spec.multilabel:
        labels = _label_sets(spec, topic, streams[3])
    else:
        noisy = streams[3].random(vertices) < spec.label_noise
        labels = np.where(noisy, streams[3].choice(spec.classes, vertices, p=_prior(spec)), topic).astype(
            np.int32
        )
        # A vertex whose label was redrawn has features of the new class where the noise is seen, else of its
        # community's.
        look = np.where(noisy & spec.noise_seen, labels, look)
    train, val, test = _splits(spec, vertices, confused if spec.drift else None, streams[4])
    if not spec.multilabel:
        labels[~(train | val | test)] = -1
    return validate(
        Graph(
            name=f"twin/{name}",
            indptr=indptr.astype(np.int32 if len(indices) < 2**31 else np.int64),
            indices=indices,
            features=_features(spec, look, streams[5]),
            labels=labels,
            num_classes=spec.classes,
            train=train,
            val=val,
            test=test,
            symmetric=True,
        )
    )


def _scaled(name: str, spec: Spec, scale: float) -> int:
    within("scale", scale, 0, 1, above=True)
    vertices = round(spec.vertices * scale)
    # With fewer, an average vertex would have over a quarter of the graph as neighbours, or an average class
    # under 8 vertices.
    least = int(max(4 * (spec.mean_degree + 1), 8 * spec.classes))
    if vertices < least:
        unit = 10.0 ** (math.floor(math.log10(least / spec.vertices)) - 1)  # of two digits the last
        enough = unit * math.ceil(least / spec.vertices / unit)
        raise InputError(
            f"scale={scale} leaves twin/{name} {vertices} vertices, fewer than the {least} that its mean "
            f"degree and classes need: give scale={enough:.2g} or more"
        )
    return vertices


def _fits(name: str, scale: float, needed: int) -> None:
    free = psutil.virtual_memory().available
    if needed > free:
        raise InputError(
            f"twin/{name} at scale={scale} needs about {needed / 2**30:.0f} GiB of memory and "
            f"{free / 2**30:.0f} are free: give scale={0.8 * scale * free / needed:.2g} or less"
        )


@dataclass(frozen=True)
class _Plan:
    """The blocks of a `Layout`, and the class of each leaf community."""

    block: np.ndarray
    first: np.ndarray
    bounds: np.ndarray
    leaf_class: np.ndarray  # [leaves] int32


def _prior(spec: Spec) -> np.ndarray:
    weight = np.arange(1, spec.classes + 1, dtype=np.float64) ** -spec.skew
    return weight / weight.sum()


def _shares(spec: Spec) -> np.ndarray:
    coarse = [share for _, share in (*spec.far, *spec.near)]
    return np.array([*coarse, spec.district, 1.0 - spec.district - sum(coarse)])


def _hierarchy(spec: Spec, vertices: int, rng: np.random.Generator) -> _Plan:
    """The blocks of each level: equal intervals for far and near levels; then districts, the parts of the
    finest of these intervals that belong to one class; then leaf communities, equal parts of a district."""
    starts = [np.arange(blocks, dtype=np.int64) * vertices // blocks for blocks, _ in (*spec.far, *spec.near)]
    order = rng.permutation(spec.classes)
    ends = np.round(np.cumsum(_prior(spec)[order]) * vertices).astype(np.int64)
    class_start = np.concatenate([[0], ends[:-1]])
    district = np.unique(np.concatenate([starts[-1], class_start]))
    size = np.diff(np.append(district, vertices))
    pieces = np.maximum(np.round(size / spec.leaf).astype(np.int64), 1)
    within_ = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    leaf = np.repeat(district, pieces) + within_ * np.repeat(size, pieces) // np.repeat(pieces, pieces)
    starts += [district, leaf]
    block = np.empty((len(starts), vertices), np.int32)
    for level, start in enumerate(starts):
        block[level] = np.repeat(np.arange(len(start), dtype=np.int32), np.diff(np.append(start, vertices)))
    first = np.cumsum([0, *(len(start) + 1 for start in starts)])[:-1].astype(np.int64)
    bounds = np.concatenate([np.append(start, vertices) for start in starts])
    leaf_class = order[np.searchsorted(class_start, leaf, side="right") - 1]
    return _Plan(block, first, bounds, leaf_class.astype(np.int32))


def _degrees(spec: Spec, vertices: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """[V] target degrees and [V] which vertices are bridges.

    Degrees are the quantiles of `least` + Lomax (density (1 + x/s)^-tail), cut at `largest`, with s solved
    for the mean. A vertex whose degree exceeds a share q of all others' is a bridge with probability
    bridges * (1 + hubs) * q^hubs."""
    survival = (np.arange(vertices) + 0.5) / vertices
    shape = survival ** (-1.0 / (spec.tail - 1.0)) - 1.0
    largest = min(spec.largest, vertices / 2)
    low, high = 0.0, 100.0 * spec.mean_degree
    for _ in range(60):
        middle = (low + high) / 2
        mean = np.minimum(spec.least + middle * shape, largest).mean()
        low, high = (middle, high) if mean < spec.mean_degree else (low, middle)
    chance = spec.bridges * (1.0 + spec.hubs) * (1.0 - survival) ** spec.hubs
    order = rng.permutation(vertices)
    return np.minimum(spec.least + low * shape, largest)[order], (rng.random(vertices) < chance)[order]


def _classes(spec: Spec, plan: _Plan, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each leaf: its class, the class its features look like, whether these differ by confusion."""
    leaves = len(plan.leaf_class)
    confused = np.zeros(leaves, bool)
    confused[rng.permutation(leaves)[: round(spec.confused * leaves)]] = True
    other = (plan.leaf_class + 1 + rng.integers(0, spec.classes - 1, leaves)) % spec.classes
    return plan.leaf_class, np.where(confused, other, plan.leaf_class).astype(np.int32), confused


def _label_sets(spec: Spec, topic: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[V, C] uint8: the log-odds that a vertex has a label are the log of the label's frequency, plus a
    normal number of standard deviation `sharpness` per (topic, label), plus a constant that makes
    `labels_each` labels per vertex."""
    base = np.arange(1, spec.classes + 1, dtype=np.float64) ** -spec.skew
    tilt = rng.normal(0.0, spec.sharpness, (spec.classes, spec.classes))
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = 1.0 / (1.0 + np.exp(-(np.log(base) + tilt + middle)))
        each = (_prior(spec)[:, None] * chance).sum()
        low, high = (middle, high) if each < spec.labels_each else (low, middle)
    labels = np.empty((len(topic), spec.classes), np.uint8)
    for start in range(0, len(topic), CHUNK):
        rows = topic[start : start + CHUNK]
        labels[start : start + CHUNK] = rng.random((len(rows), spec.classes), dtype=np.float32) < chance[rows]
    return labels


def _splits(
    spec: Spec, vertices: int, test_only: np.ndarray | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Masks with the real split's shares. The vertices that `test_only` [V] marks (of confused communities,
    under drift) come last in the order that is divided, so test gets them first."""
    order = rng.permutation(vertices)
    if test_only is not None:
        order = np.concatenate([order[~test_only[order]], order[test_only[order]]])
    counts = [round(share / spec.vertices * vertices) for share in spec.split]
    counts[2] = min(counts[2], vertices - counts[0] - counts[1])
    masks = [np.zeros(vertices, bool) for _ in range(3)]
    masks[0][order[: counts[0]]] = True
    masks[1][order[counts[0] : counts[0] + counts[1]]] = True
    masks[2][order[vertices - counts[2] :]] = True
    return masks


def _features(spec: Spec, look: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[V, F] float32: the centre of the class a vertex looks like, plus standard normal noise."""
    centre = rng.standard_normal((spec.classes, spec.features), dtype=np.float32)
    centre *= spec.signal / np.linalg.norm(centre, axis=1, keepdims=True)
    features = np.empty((len(look), spec.features), np.float32)
    key = int(rng.integers(2**63))

    def fill(start: int) -> None:
        rows = features[start : start + CHUNK]
        np.random.Generator(np.random.Philox(key=[key, start])).standard_normal(out=rows, dtype=np.float32)
        rows += centre[look[start : start + CHUNK]]

    with ThreadPoolExecutor(numba.get_num_threads()) as pool:
        list(pool.map(fill, range(0, len(look), CHUNK)))
    return features
