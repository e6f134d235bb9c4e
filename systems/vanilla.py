"""Vanilla: exact full-graph training by halo exchange.

For every layer each worker sends its peers the rows that they aggregate, each row once per peer. While the
rows travel it multiplies with its own rows, and then it adds the halo's part. The backward pass returns the
gradients of halo rows to their owners. This is the reference of every comparison: bytes, time, accuracy.

Notation: n inner, m halo vertices of a worker; H^l [n, f_l] the input of layer l (H^0 = X).

Bytes per epoch over all workers, 4-byte floats (2 for 4 under `wire=bfloat16`), M = total halo vertices:
    forward   4 M f_l for every layer l >= 1, and for l = 0 under `features=refetch`
    backward  4 M f_l for every layer l >= 1, and for l = 0 under `labels=masked`

Decisions: layer 0 is static, so fetching it once is exact; both `features=once` and `features=refetch` are
offered and shown. Departures: none: it is the exchange that the papers compare with.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.base.bounds import word
from harness.core.system import Refuses, System


@dataclass
class Vanilla(System):
    """features: fetch layer 0's halo rows "once", or "refetch" them every epoch."""

    features: str = word("once", "refetch")

    exact: ClassVar = {}
    role: ClassVar[str] = "reference"
    refuses: ClassVar = Refuses(needed_rows="", labels="")

    def halo(self, layer, h):
        return self.comm.exchange(self.plans[layer], h, layer)
