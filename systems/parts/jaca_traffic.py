"""What CaPGNN's workers count in an epoch: rows from their owners, rows out of the global tier, and what
tells that these are there.

With `policy=jaca` or `low_overlap` tiers hold the same vertices for the whole run, and bytes follow from the
halos. Under `fifo` and `lru`, and where RAPA takes halo vertices away or `hosts` drops those between hosts,
they are a range: at most what fetching all takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from harness.core.traffic import FLOAT, Parts, Traffic, fetch_once, halo_exchanges, to_all, with_weights
from systems.parts.jaca import FIXED, Halos, global_tier
from systems.parts.rowcache import NONE, Selection


class Knobs(Protocol):
    """Of the system, as it has them."""

    jaca: bool
    rapa: bool
    policy: str
    tiers: str
    refresh: int
    gradients: str
    features: str
    top_k: int
    pipeline: bool
    hosts: int


def cached_traffic(
    knobs: Knobs, sizes: Callable[[Halos, list[int]], tuple[list[int], int]], parts: Parts, epoch: int
) -> Traffic:
    """sizes(halos, widths): the vertices that each worker's tier and the global one hold."""
    if knobs.hosts > 1:
        return _at_most(knobs, parts, epoch)
    if not knobs.jaca and not knobs.rapa:
        return halo_exchanges(parts, epoch, knobs.features, ahead=knobs.pipeline)
    if knobs.rapa or knobs.policy not in FIXED:
        return _at_most(knobs, parts, epoch)
    first = 1 if knobs.features == "once" else 0
    made = with_weights(parts)
    if knobs.features == "once" and epoch == 0:
        fetch_once(made, parts)
    if epoch == 0:
        made.add(-1, "forward", "ids", to_all([4 * s.num_halo + 8 * parts.workers for s in parts.shards]))
    direct, shared, announced = parts.once("sources", lambda: _sources(knobs, sizes, parts, first))
    for layer in range(first, parts.layers):
        row = FLOAT * parts.widths[layer]
        expired = int(epoch % knobs.refresh == 0 if layer else epoch == 0)
        ahead = knobs.pipeline
        made.add(layer, "forward", "halo", direct[expired] * row, ahead=ahead)
        # The reader counts.
        made.add(layer, "forward", "global_get", shared[expired].T * row, route="take", ahead=ahead)
        if expired and announced:
            made.add(layer, "forward", "flags", to_all([1] * parts.workers))
        if layer:
            used = max(epoch - knobs.pipeline, 0)  # the epoch whose rows are aggregated
            whole = knobs.gradients == "exact" or used % knobs.refresh == 0
            made.add(layer, "backward", "halo", (parts.rows[layer] if whole else direct[0]).T * row)
    return made


def _sources(
    knobs: Knobs, sizes: Callable[[Halos, list[int]], tuple[list[int], int]], parts: Parts, first: int
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Rows [2, P, P] from owner to reader, between refreshes and in one: directly, and out of the global
    tier; and whether that holds any."""
    halos = Halos.of(parts.shards, lowest=knobs.policy == "low_overlap")
    local, common = sizes(halos, parts.widths[first : parts.layers])
    held = [
        Selection(len(ids), count, halos.best(p, knobs.top_k)).slots != NONE
        for p, (ids, count) in enumerate(zip(halos.ids, local))
    ]
    exclusive = knobs.tiers == "exclusive"
    best = halos.best_of_rest(knobs.top_k, held) if exclusive else halos.best_of_all(knobs.top_k)
    in_common = Selection(len(halos.union), common, best).slots != NONE
    direct, shared = (np.zeros((2, parts.workers, parts.workers)) for _ in range(2))
    for p, (own, keys) in enumerate(zip(held, halos.keys)):
        there = in_common[keys] & ~own if exclusive else in_common[keys]
        for refreshed, used in enumerate((there | own, there)):
            taken = there if refreshed else there & ~own
            direct[refreshed, :, p] = np.bincount(halos.owners[p][~used], minlength=parts.workers)
            shared[refreshed, :, p] = np.bincount(halos.owners[p][taken], minlength=parts.workers)
    return direct, shared, bool(in_common.any())


def _at_most(knobs: Knobs, parts: Parts, epoch: int) -> Traffic:
    """Between nothing and everything, each row either from its owner or from the global tier."""
    whole, made = halo_exchanges(parts, epoch, knobs.features), with_weights(parts)
    host = np.arange(parts.workers) // (parts.workers // knobs.hosts)
    here = host[:, None] == host[None, :]  # nothing but ids and weights goes to another host
    for key, most in whole.most.items():
        if key[0] >= 0:
            made.add(*key, np.zeros_like(most), most * np.pad(here, ((0, 0), (0, 1))))  # the last: a store
    if knobs.jaca:
        first = 1 if knobs.features == "once" else 0
        ids = to_all([4 * s.num_halo + 8 * parts.workers for s in parts.shards])
        replaced = knobs.policy not in FIXED
        told = ids + 8 * (parts.workers > 1) if epoch == 0 or replaced else np.zeros_like(ids)
        made.add(-1, "forward", "ids", np.zeros_like(ids), told + (ids + 8) * (replaced and epoch == 0))
        for layer in range(first, parts.layers):
            taken = parts.rows[layer].T * here * parts.widths[layer] * FLOAT
            made.add(layer, "forward", "global_get", np.zeros_like(taken), taken, route="take")
            made.add(layer, "forward", "flags", np.zeros_like(ids), to_all([1] * parts.workers) * here)
    return made


def held_in_tiers(
    knobs: Knobs, sizes: Callable[[Halos, list[int]], tuple[list[int], int]], parts: Parts
) -> tuple[np.ndarray, np.ndarray]:
    """[P] bytes of each worker's own tier, and of the global one, which every worker maps."""
    if not knobs.jaca:
        return np.zeros(parts.workers), np.zeros(parts.workers)
    widths = parts.widths[1 if knobs.features == "once" else 0 : parts.layers]
    halos = Halos.of(parts.shards, hosts=knobs.hosts)
    local, common = sizes(halos, widths)
    if knobs.hosts > 1:  # what the fullest host's tier holds is made on each
        common = global_tier(halos, common, halos.best_of_all(knobs.top_k)).capacity
    row = FLOAT * sum(widths)
    return row * np.asarray(local, float), np.full(parts.workers, float(row * common))
