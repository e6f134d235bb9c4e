"""Zero halo: the control. Every remote row is 0, in every layer; degrees stay global.

A system that scores no better than this one uses no remote information. Nothing but weight gradients is sent.

Decisions: kept edges keep their global-degree weight. Evaluation is exact and sees the whole graph, as for
every system. Departures: none: it is a control of this project.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.core.system import Ready, Refuses, System, Traits


@dataclass
class ZeroHalo(System):
    """No knobs."""

    role: ClassVar[str] = "control"
    refuses: ClassVar = Refuses(needed_rows="", labels="")
    exact_input: ClassVar[bool] = False

    def traits(self):
        return Traits(sparse_features=True)

    def halo(self, layer, h):
        return Ready(h.new_zeros(self.plans[layer].num_halo, h.shape[1]))

    def input_halo(self, x):
        return x.new_zeros(self.plans[0].num_halo, x.shape[1])
