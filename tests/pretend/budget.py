"""What a system may ask of a device in one epoch: each number is an upper bound that no change may exceed.

Of two layers of GCN on two workers, each with a GPU of its own, in the worst epoch of the worst worker after
the first; evaluation and checkpoints apart. Lower a number when a change lowers what is counted.
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

BUDGET = {
    "adaqp": Cost(synchronisations=13, drains=0, launches=200, collectives=3),
    "adaqp, adaptive": Cost(synchronisations=63, drains=4, launches=475, collectives=9),
    "bns": Cost(synchronisations=16, drains=0, launches=170, collectives=3),
    "cagnet": Cost(synchronisations=10, drains=0, launches=132, collectives=5),
    "capgnn": Cost(synchronisations=18, drains=0, launches=165, collectives=2),
    "cdfgnn": Cost(synchronisations=69, drains=0, launches=405, collectives=10),
    "digest": Cost(synchronisations=6, drains=0, launches=123, collectives=1),
    "digest_a": Cost(synchronisations=6, drains=0, launches=116, collectives=0),
    "llcg": Cost(synchronisations=22, drains=0, launches=518, collectives=4),
    "local": Cost(synchronisations=5, drains=0, launches=95, collectives=1),
    "pipegcn": Cost(synchronisations=11, drains=4, launches=157, collectives=3),
    "pscgcn": Cost(synchronisations=44, drains=6, launches=203, collectives=5),
    "sancus": Cost(synchronisations=10, drains=0, launches=132, collectives=5),
    "sancus/official": Cost(synchronisations=10, drains=0, launches=132, collectives=5),
    "skipg": Cost(synchronisations=10, drains=0, launches=132, collectives=5),
    "vanilla": Cost(synchronisations=11, drains=0, launches=154, collectives=3),
    "zero_halo": Cost(synchronisations=6, drains=0, launches=123, collectives=1),
}


def cost_of(run: Trained, resumed: bool = False) -> Cost:
    """What the worst epoch asked for: before a stop, or once a resumed run has its caches again."""
    epochs = range(STOP_AT + 1, EPOCHS) if resumed else range(1, STOP_AT)
    return Cost(*(run.worst(kind, epochs) for kind in KINDS))
