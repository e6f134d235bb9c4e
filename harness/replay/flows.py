"""Flows that share links. Rates are max-min fair: nobody can have more without taking from somebody who has
no more (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2).

A flow crosses up to HOPS links, all at once and at one rate, as a stream of small packets does. Between two
changes of the set of flows all rates are constant, so the next flow to end is the one with the least
remaining / rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

HOPS = 4  # links that a flow crosses at most
NONE = -1  # fills up a route
SAME = 1e-9  # times nearer than this share of themselves are one time


@njit(cache=True, nogil=True)
def max_min(routes: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Rates [n] of flows over routes [n, HOPS] int32 (links, then NONE), links of capacity [m] > 0.

    All rates rise together until a link is full; the flows through it keep what they have, the others go on.
    So no link carries more than its capacity, and every flow has a full link on which none has more than it.
    Each flow crosses a link at least, each link at most once.
    """
    flows, links = len(routes), len(capacity)
    rates = np.zeros(flows)
    fixed = np.zeros(flows, np.bool_)
    left = capacity.copy()  # of each link, not yet given away
    wanting = np.zeros(links, np.int64)  # flows through each link whose rate is not yet fixed
    full = np.zeros(links, np.bool_)
    for f in range(flows):
        for link in routes[f]:
            if link != NONE:
                wanting[link] += 1
    remaining = flows
    while remaining:
        # The next links to be full are those with the least to share out per flow.
        share = np.inf
        for link in range(links):
            if wanting[link]:
                share = min(share, left[link] / wanting[link])
        for link in range(links):
            full[link] = wanting[link] > 0 and left[link] / wanting[link] <= share * (1 + 1e-12)
        for f in range(flows):
            if fixed[f]:
                continue
            stopped = False
            for link in routes[f]:
                stopped = stopped or (link != NONE and full[link])
            if stopped:
                fixed[f], rates[f] = True, share
                remaining -= 1
                for link in routes[f]:
                    if link != NONE:
                        left[link] = max(0.0, left[link] - share)
                        wanting[link] -= 1
    return rates


class Flows:
    """The flows under way at one moment, and when the next of them ends.

    capacity   [m] bytes per second of each link
    """

    def __init__(self, capacity: Sequence[float]):
        self.capacity = np.asarray(capacity, dtype=np.float64)
        self.now = 0.0
        self.names: list[int] = []
        self.routes = np.full((64, HOPS), NONE, np.int32)
        self.remaining = np.zeros(64)
        self.rates = np.zeros(0)
        self._next: float | None = None  # None: the set of flows has changed

    def add(self, name: int, route: Sequence[int], size: float, now: float) -> None:
        """Begin a flow of `size` > 0 bytes over the links of `route`, one at least."""
        self._pass_to(now)
        count = len(self.names)
        if count == len(self.routes):
            self.routes = np.concatenate([self.routes, np.full_like(self.routes, NONE)])
            self.remaining = np.concatenate([self.remaining, np.zeros_like(self.remaining)])
        self.names.append(name)
        self.routes[count] = NONE
        self.routes[count, : len(route)] = route
        self.remaining[count] = size
        self._next = None

    def next_end(self) -> float:
        """The moment at which the next flow ends; infinite where none is under way."""
        if self._next is None:
            count = len(self.names)
            self._next = math.inf
            if count:
                self.rates = max_min(self.routes[:count], self.capacity)
                self._next = self.now + float((self.remaining[:count] / self.rates).min())
        return self._next

    def end(self) -> list[int]:
        """Go on to `next_end()` and give the names of the flows that end then, in the order in which they
        began."""
        moment, count = self.next_end(), len(self.names)
        # Not from the moment less the time now, a difference that rounding may have made smaller than it is.
        left = self.remaining[:count] / self.rates
        due = left <= left.min() * (1 + SAME)
        self._pass_to(moment)
        ended = [name for name, over in zip(self.names, due) if over]
        kept = np.flatnonzero(~due)
        self.names = [self.names[i] for i in kept]
        self.routes[: len(kept)] = self.routes[kept]
        self.remaining[: len(kept)] = self.remaining[kept]
        self._next = None
        return ended

    def _pass_to(self, now: float) -> None:
        if now > self.now:
            if self.names:
                self.next_end()  # the rates up to now
                self.remaining[: len(self.names)] -= self.rates * (now - self.now)
                # Rounding must not make a flow end before it is asked whether it has.
                np.maximum(self.remaining, 0.0, out=self.remaining)
            self.now = now
