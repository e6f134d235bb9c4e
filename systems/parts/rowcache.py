"""Which rows a cache of bounded size holds: a fixed selection, or a queue with FIFO or LRU replacement.

Only keys are moved here, compiled, one access after the other as the policies are defined; the rows stand in
tensors indexed by the slots that this hands out.
"""

from collections.abc import Sequence

import numba
import numpy as np
import torch

NONE = -1  # of a key that is not held


class Selection:
    """A fixed set of keys; slot k holds the k-th.

    keys [c] distinct, of 0 .. num_keys - 1; the first `capacity` of them are held
    """

    def __init__(self, num_keys: int, capacity: int, keys: Sequence[int] | np.ndarray):
        held = np.asarray(keys, np.int64)[:capacity]
        self.capacity, self.slots = len(held), np.full(num_keys, NONE, np.int64)
        self.slots[held] = np.arange(len(held))


class Queue:
    """A cache of `capacity` keys that makes room by evicting the key that came first (`fifo`) or was used
    longest ago (`lru`).

    slots [num_keys]   of every key, NONE where it is not held
    """

    def __init__(self, num_keys: int, capacity: int, policy: str):
        assert policy in ("fifo", "lru")
        self.capacity, self.renews = min(capacity, num_keys), policy == "lru"
        self.slots = np.full(num_keys, NONE, np.int64)
        self.keys = np.full(self.capacity, NONE, np.int64)  # by slot
        self.links = np.full((2, self.capacity), NONE, np.int64)  # by slot: who came before, who after
        self.ends = np.array([NONE, NONE, 0], np.int64)  # first and last to be evicted, slots in use

    def touch(self, keys: np.ndarray) -> np.ndarray:
        """Use keys [k] in order, taking none in; returns the slot of each, NONE where it is not held."""
        return _use(keys, False, self.renews, self.slots, self.keys, self.links, self.ends)

    def access(self, keys: np.ndarray) -> np.ndarray:
        """Use keys [k] in order, each taken in where it is not held; returns the slot in which each was
        found, NONE where it was not.
        """
        return _use(keys, True, self.renews, self.slots, self.keys, self.links, self.ends)

    def state_dict(self) -> dict:
        return {
            name: torch.from_numpy(getattr(self, name).copy()) for name in ("slots", "keys", "links", "ends")
        }

    def load_state_dict(self, state: dict) -> None:
        for name, values in state.items():
            setattr(self, name, values.cpu().numpy().copy())


Tier = Selection | Queue


@numba.njit(cache=True)
def _unlink(slot, links, ends):
    before, after = links[0, slot], links[1, slot]
    if before >= 0:
        links[1, before] = after
    else:
        ends[0] = after
    if after >= 0:
        links[0, after] = before
    else:
        ends[1] = before


@numba.njit(cache=True)
def _append(slot, links, ends):
    links[0, slot], links[1, slot] = ends[1], -1
    if ends[1] >= 0:
        links[1, ends[1]] = slot
    else:
        ends[0] = slot
    ends[1] = slot


@numba.njit(cache=True)
def _use(accessed, take_in, renews, slots, keys, links, ends):
    """The slot in which each key was found; with `take_in` a key that was not gets a slot. Slots in use are a
    list by `links`, the next to be evicted first; with `renews` a key that is used moves to its end."""
    found = np.empty(len(accessed), np.int64)
    capacity = len(keys)
    for i in range(len(accessed)):
        key = accessed[i]
        slot = slots[key]
        found[i] = slot
        if slot >= 0:
            if renews:
                _unlink(slot, links, ends)
                _append(slot, links, ends)
        elif take_in and capacity > 0:
            if ends[2] < capacity:
                slot = ends[2]
                ends[2] += 1
            else:
                slot = ends[0]
                _unlink(slot, links, ends)
                slots[keys[slot]] = -1
            slots[key], keys[slot] = slot, key
            _append(slot, links, ends)
    return found
