"""Flows that share links. Rates are max-min fair: nobody can have more without taking from somebody who has
no more (progressive filling; Bertsekas and Gallager, Data Networks, section 6.5.2).

A flow crosses up to HOPS links, all at once and at one rate, as a stream of small packets does. Between two
changes of the set of flows all rates are constant, so the next flow to end is the one with the least
remaining / rate.
"""

import math
from collections.abc import Sequence

import numpy as np
from numba import njit

HOPS = 4  # links that a flow crosses at most
NONE = -1  # fills up a route
SAME = 1e-9  # ends that differ by less than this share of themselves are one moment
# Where more flows than MANY are under way, rates are not found anew for each that begins or ends, but a few
# hundred times in the time that a flow takes.
MANY, NEAR = 2048, 0.005


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
    for f in range(flows):
        for link in routes[f]:
            if link != NONE:
                wanting[link] += 1
    # The flows through each link, one link after the other.
    begins = np.zeros(links + 1, np.int64)
    for link in range(links):
        begins[link + 1] = begins[link] + wanting[link]
    through, place = np.empty(begins[links], np.int64), begins[:links].copy()
    for f in range(flows):
        for link in routes[f]:
            if link != NONE:
                through[place[link]] = f
                place[link] += 1
    # Links whose flows are not all fixed, and of these the next ones to be full.
    active, full = np.flatnonzero(wanting), np.empty(links, np.int64)
    open_links, remaining = len(active), flows
    while remaining:
        # The next links to be full are those with the least to share out per flow.
        share, kept = np.inf, 0
        for k in range(open_links):
            link = active[k]
            if wanting[link]:
                active[kept] = link
                kept += 1
                share = min(share, left[link] / wanting[link])
        open_links, count = kept, 0
        for k in range(open_links):
            link = active[k]
            if left[link] / wanting[link] <= share * (1 + 1e-12):
                full[count] = link
                count += 1
        for k in range(count):
            for at in range(begins[full[k]], begins[full[k] + 1]):
                f = through[at]
                if fixed[f]:
                    continue
                fixed[f], rates[f] = True, share
                remaining -= 1
                for link in routes[f]:
                    if link != NONE:
                        left[link] = max(0.0, left[link] - share)
                        wanting[link] -= 1
    return rates


class Flows:
    """The flows under way at one moment, and when the next of them ends.

    Beyond MANY flows, those that begin within NEAR of the flows' usual duration begin together, and those
    that end within NEAR of their own duration end together. `merged` says whether any did.

    capacity   [m] bytes per second of each link
    """

    def __init__(self, capacity: Sequence[float]):
        self.capacity = np.asarray(capacity, dtype=np.float64)
        self.now, self.count, self.merged = 0.0, 0, False
        self.names = np.zeros(64, np.int64)
        self.routes = np.full((64, HOPS), NONE, np.int32)
        self.remaining, self.begun = np.zeros(64), np.zeros(64)
        self.rates = np.zeros(0)
        self.usual = 0.0  # seconds: the median of what flows had before them when rates were last found
        self.joining: list[tuple[int, Sequence[int], float, float]] = []  # (name, route, size, begun)
        self._next: float | None = None  # None: the set of flows has changed

    def add(self, name: int, route: Sequence[int], size: float, now: float) -> None:
        """Begin a flow of `size` > 0 bytes over the links of `route`, one at least."""
        if self.count > MANY:
            self.joining.append((name, route, size, now))
        else:
            self._pass_to(now)
            self._join(name, route, size, now)

    def next_end(self) -> float:
        """When the next flow ends, or those that wait to begin do; infinite where none is under way."""
        if self._next is None:
            self._next = math.inf
            if self.count:
                self.rates = max_min(self.routes[: self.count], self.capacity)
                left = self.remaining[: self.count] / self.rates
                self._next = self.now + float(left.min())
                if self.count > MANY:
                    self.usual = float(np.median(left))
        return min(self._next, self._joined())

    def end(self) -> list[int]:
        """Go on to `next_end()` and give the names of the flows that end then, the oldest first."""
        moment, count = self.next_end(), self.count
        if moment == self._joined():
            self._pass_to(moment)
            for each in self.joining:
                self._join(*each)
            self.merged = self.merged or len({begun for *_, begun in self.joining}) > 1
            self.joining = []
            return []
        # Flows are due by the seconds that they have left, not by `moment - now`: rounding may have made that
        # too small.
        left = self.remaining[:count] / self.rates
        due = left <= left.min() * (1 + SAME)
        if count > MANY:
            near = left <= left.min() + NEAR * (self.now + left - self.begun[:count])
            self.merged = self.merged or bool((near & ~due).any())
            due = due | near
        self._pass_to(moment)
        ended = [int(name) for name in self.names[:count][due]]
        kept = np.flatnonzero(~due)
        for array in (self.names, self.routes, self.remaining, self.begun):
            array[: len(kept)] = array[kept]
        self.count, self._next = len(kept), None
        return ended

    def _joined(self) -> float:
        """When those that wait to begin do."""
        return self.joining[0][-1] + NEAR * self.usual if self.joining else math.inf

    def _join(self, name: int, route: Sequence[int], size: float, begun: float) -> None:
        count = self.count
        if count == len(self.routes):
            double = [np.concatenate([a, np.zeros_like(a)]) for a in (self.names, self.remaining, self.begun)]
            self.names, self.remaining, self.begun = double
            self.routes = np.concatenate([self.routes, np.full_like(self.routes, NONE)])
        self.names[count] = name
        self.routes[count] = NONE
        self.routes[count, : len(route)] = route
        self.remaining[count], self.begun[count] = size, begun
        self.count, self._next = count + 1, None

    def _pass_to(self, now: float) -> None:
        if now > self.now:
            if self.count:
                self.next_end()  # the rates up to now
                self.remaining[: self.count] -= self.rates * (now - self.now)
                # Rounding must not make a flow end before it is asked whether it has.
                np.maximum(self.remaining, 0.0, out=self.remaining)
            self.now = now
