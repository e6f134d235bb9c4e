"""METIS as DistDGL extends it, for graphs that would grow denser while they are coarsened (section 4.1.2 of
the thesis): METIS 5.2 has each part of the extension as an option."""

import contextlib
from dataclasses import dataclass, field

from harness.base.bounds import number
from harness.base.scratch import scratch
from harness.data.partition.balanced import Balanced
from harness.data.partition.metis_library import kway


@dataclass
class Extended(Balanced):
    """DistDGL's extension of METIS for graphs that are too large for it.

    The defaults are the extension's. METIS's own stand in brackets: with those this is METIS without it.

    balance      as of `Balanced` [vertices]
    drop_edges   a coarse vertex keeps only its heaviest edges, as many as the vertices that it is made of
                 have in the mean [false]
    on_disk      coarser and finer graphs wait in a folder of temporary files until they are needed [false]
    initial      initial partitions of the coarsest graph, of which the best is taken; null: as many as METIS
                 tries, 4 or 5 by the size of that graph [null]
    refinements  refining passes on each finer graph, at most [10]
    """

    balance: list[str] = field(default_factory=lambda: ["vertices"])
    drop_edges: bool = True
    on_disk: bool = True
    initial: int | None = number(1, 1, 1000)
    refinements: int = number(1, 1, 10**6)

    def answer(self, starts, neighbours, weights, parts, seed):
        options = {
            "dropedges": int(self.drop_edges),
            "ondisk": int(self.on_disk),
            "niparts": -1 if self.initial is None else self.initial,
            "niter": self.refinements,
        }
        with contextlib.ExitStack() as stack:
            if self.on_disk:  # METIS writes where the process stands
                stack.enter_context(contextlib.chdir(stack.enter_context(scratch())))
            return kway(starts, neighbours, weights, parts, seed, "partition=metis/extended", options)
