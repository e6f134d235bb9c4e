"""Local: partition-based training, DIGEST's category (b). Cut edges are dropped and degrees counted inside
each worker.

Nothing but weight gradients is sent. Evaluation is exact and sees the whole graph, as for every system.

Decisions: degrees are local, so every worker trains on a proper graph of its own.
Departures: gradients are summed over the global training vertices, as everywhere here, where DIGEST's
baseline LLCG averages weights.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.core.system import Ready, Refuses, System, Traits


@dataclass
class Local(System):
    """No knobs."""

    degrees: ClassVar[str] = "local"
    exact_input: ClassVar[bool] = False
    refuses: ClassVar = Refuses(
        needed_rows="drops the edges that remote rows would come over",
        batch_norm="adds up no statistics, since its workers train without communication",
    )

    def traits(self):
        return Traits(sparse_features=True)

    def halo(self, layer, h):
        return Ready(h.new_empty(0, h.shape[1]))

    def input_halo(self, x):
        return None
