"""What a system may ask of a device in one epoch: each number is an upper bound that no change may exceed.

Of two layers of GCN on two workers (four of 1.5D), each with a GPU of its own, in the worst epoch of the
worst worker after the first; evaluation and checkpoints apart. Lower a number when a change lowers what is
counted.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.pretend.tally import COLLECTIVE, DRAIN, LAUNCH, SYNCHRONISATION
from tests.pretend.training import EPOCHS, STOP_AT, Trained


class Cost(NamedTuple):
    synchronisations: int
    drains: int
    launches: int
    collectives: int


KINDS = Cost(SYNCHRONISATION, DRAIN, LAUNCH, COLLECTIVE)  # type: ignore[arg-type]  # the kind of note of each

# Of a system that has none of its own: what still lets a device run ahead of its host.
CEILING = Cost(synchronisations=40, drains=0, launches=450, collectives=12)
BUDGET = {
    "adaqp": Cost(synchronisations=4, drains=0, launches=138, collectives=3),
    "adaqp, adaptive": Cost(synchronisations=24, drains=0, launches=413, collectives=9),
    "bns": Cost(synchronisations=4, drains=0, launches=81, collectives=3),
    "bytegnn": Cost(synchronisations=8, drains=0, launches=126, collectives=1),
    "cagnet": Cost(synchronisations=4, drains=0, launches=52, collectives=5),
    "cagnet, 1.5D": Cost(synchronisations=8, drains=0, launches=54, collectives=7),
    "capgnn": Cost(synchronisations=11, drains=0, launches=64, collectives=2),
    "cdfgnn": Cost(synchronisations=28, drains=0, launches=347, collectives=10),
    "cofree": Cost(synchronisations=2, drains=0, launches=46, collectives=1),
    "digest": Cost(synchronisations=2, drains=0, launches=49, collectives=1),
    "digest_a": Cost(synchronisations=3, drains=0, launches=42, collectives=0),
    "distdgl": Cost(synchronisations=8, drains=0, launches=126, collectives=1),
    "distdgl/dgl": Cost(synchronisations=8, drains=0, launches=126, collectives=1),
    "distdgl/sage": Cost(synchronisations=8, drains=0, launches=126, collectives=1),
    "ecgraph": Cost(synchronisations=11, drains=0, launches=323, collectives=4),
    "gas": Cost(synchronisations=26, drains=0, launches=113, collectives=7),
    "graphsaint": Cost(synchronisations=8, drains=0, launches=81, collectives=1),
    "grappa": Cost(synchronisations=6, drains=0, launches=53, collectives=1),
    "lean": Cost(synchronisations=6, drains=0, launches=365, collectives=5),
    "llcg": Cost(synchronisations=5, drains=0, launches=202, collectives=4),
    "local": Cost(synchronisations=2, drains=0, launches=43, collectives=1),
    "pipegcn": Cost(synchronisations=4, drains=0, launches=57, collectives=3),
    "pscgcn": Cost(synchronisations=12, drains=0, launches=128, collectives=5),
    "replicate": Cost(synchronisations=2, drains=0, launches=43, collectives=1),
    "sancus": Cost(synchronisations=4, drains=0, launches=52, collectives=5),
    "sancus/official": Cost(synchronisations=6, drains=0, launches=59, collectives=7),
    "skipg": Cost(synchronisations=4, drains=0, launches=52, collectives=5),
    "sylvie": Cost(synchronisations=4, drains=0, launches=176, collectives=3),
    "sanqus": Cost(synchronisations=4, drains=0, launches=136, collectives=5),
    "supergnn": Cost(synchronisations=4, drains=0, launches=46, collectives=3),
    "supergnn, coded": Cost(synchronisations=4, drains=0, launches=118, collectives=3),
    "vanilla": Cost(synchronisations=4, drains=0, launches=54, collectives=3),
    "vanilla/cover": Cost(synchronisations=4, drains=0, launches=58, collectives=3),
    "varco": Cost(synchronisations=6, drains=0, launches=62, collectives=3),
    "zero_halo": Cost(synchronisations=2, drains=0, launches=49, collectives=1),
}


def cost_of(run: Trained, resumed: bool = False) -> Cost:
    """What the worst epoch asked for: before a stop, or once a resumed run has its caches again."""
    epochs = range(STOP_AT + 1, EPOCHS) if resumed else range(1, STOP_AT)
    return Cost(*(run.worst(kind, epochs) for kind in KINDS))
