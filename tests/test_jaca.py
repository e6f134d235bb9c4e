"""What CaPGNN's two tiers hold and serve, inclusive and exclusive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.cuts import halo_plan
from systems.capgnn import Capgnn
from systems.parts.jaca import Halos, Tiers
from systems.parts.rowcache import NONE
from tests import systems
from tests.oracles.samples import random_blocks, random_graph

HOW = {"seed": st.integers(0, 10_000), "parts": st.integers(2, 4), "top_k": st.sampled_from([-1, -1, 1, 2])}


@dataclass
class Told:
    """A worker's side of meetings in which every worker has already spoken: what all said, in order."""

    rank: int
    size: int
    said: list[list[np.ndarray]]
    device: torch.device = torch.device("cpu")

    def all_gather(self, tensor, layer, purpose):
        return [torch.from_numpy(array) for array in self.said.pop(0)]


def tiers_of(
    seed: int, parts: int, local: list[int], shared: int, top_k: int, exclusive: bool
) -> list[Tiers]:
    """Every worker's view of the tiers, `policy=jaca`, on a random graph and partition."""
    shards = systems.shards_of(random_graph(seed, vertices=24), random_blocks(seed, 24, parts), parts)
    made = []
    for shard in shards:
        comm = Told(shard.rank, parts, [[s.halo for s in shards], [s.halo_counts for s in shards]])
        halos, plan = Halos(shard, comm), halo_plan(shard, comm.device)
        made.append(Tiers(halos, shard, comm, plan, "jaca", local[:parts], shared, top_k, exclusive))
    return made


def hits(tiers: list[Tiers]) -> tuple[int, int]:
    """Of all workers together, between refreshes: in local tiers and in the global one."""
    fetches = [own.fetch(False) for own in tiers]
    return sum(f.local_hits for f in fetches), sum(f.global_hits for f in fetches)


CAPACITIES = {"local": st.lists(st.integers(0, 16), min_size=4, max_size=4), "shared": st.integers(0, 24)}


@given(exclusive=st.booleans(), **CAPACITIES, **HOW)
def test_every_lookup_is_served_from_one_place_and_no_tier_holds_more_than_it_may(
    seed, parts, top_k, local, shared, exclusive
):
    tiers = tiers_of(seed, parts, local, shared, top_k, exclusive)
    for own, capacity in zip(tiers, local):
        assert np.count_nonzero(own.local.slots != NONE) == own.local.capacity <= capacity
        assert np.count_nonzero(own.shared.slots != NONE) == own.shared.capacity <= shared
        np.testing.assert_array_equal(own.shared.slots, tiers[0].shared.slots)
        lookups = len(own.halos.ids[own.halos.rank])
        for expired in (False, True):
            fetch = own.fetch(expired)
            served = torch.cat([fetch.local_places, fetch.shared_places, fetch.direct.places])
            assert served.sort().values.tolist() == list(range(lookups))
            found = fetch.local_hits + fetch.global_hits
            assert found == (0 if expired else len(fetch.local_places) + len(fetch.shared_places))
            assert found + fetch.refreshed <= lookups
        # What a refresh computes anew is what a lookup between refreshes finds.
        assert own.fetch(True).refreshed == own.fetch(False).local_hits + own.fetch(False).global_hits


@given(**CAPACITIES, **HOW)
def test_an_exclusive_global_tier_serves_what_local_tiers_do_not_hold_and_finds_no_less(
    seed, parts, top_k, local, shared
):
    tiers = tiers_of(seed, parts, local, shared, top_k, exclusive=True)
    halos = tiers[0].halos
    past = np.zeros(len(halos.union), int)  # lookups of each vertex that no local tier serves
    for p, own in enumerate(tiers):
        held = own.local.slots != NONE
        past[halos.keys[p][~held]] += 1
        for expired in (False, True):
            assert not held[own.fetch(expired).shared_places.numpy()].any(), "held here, served from there"
    inside = tiers[0].shared.slots != NONE
    assert (past[inside] > 0).all(), "everything in the global tier is looked up there"
    able = np.zeros(len(halos.union), bool)
    able[halos.best_of_all(top_k)] = True
    left_out = past[able & ~inside]
    assert not inside.any() or not left_out.size or past[inside].min() >= left_out.max(), "the best are held"
    assert tiers[0].shared.capacity == min(shared, np.count_nonzero(past[able]))
    inclusive = hits(tiers_of(seed, parts, local, shared, top_k, exclusive=False))
    exclusive = hits(tiers)
    assert exclusive[0] == inclusive[0] and exclusive[1] == past[inside].sum() >= inclusive[1]


@given(local=CAPACITIES["local"], seed=HOW["seed"], parts=HOW["parts"])
def test_an_inclusive_global_tier_that_is_not_larger_than_the_local_ones_is_never_hit(local, seed, parts):
    smallest = min(local[:parts])
    assert hits(tiers_of(seed, parts, local, smallest, -1, exclusive=False))[1] == 0


@pytest.mark.parametrize("policy", ["low_overlap", "fifo", "lru"])
def test_exclusive_tiers_are_refused_where_no_ratio_ranks_vertices(policy):
    with pytest.raises(InputError, match=f"tiers=exclusive .* policy={policy} does not; give policy=jaca or"):
        Capgnn(policy=policy, tiers="exclusive")
