"""What a system says of itself before anything runs: of its class, and at its knobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.core.combine import Combine, Exact
from harness.core.straggler import Straggler


@dataclass(frozen=True)
class Refuses:
    """Why a system cannot do what a run may ask for: words that follow its name, as "quantises what it
    sends"; "" where it can.

    wire         another `wire` than float32. It can where `comm` sends all its rows
    needed_rows  `rows=needed`. It can where it exchanges the rows of `plans[layer]`
    attention    a model without a propagation matrix. None: it can unless its `propagate` is its own
    combine      another `combine` than exact. None: it can unless its `combine` is its own; one that hands
                 its gradients to `combiner` can too
    """

    wire: str = ""
    needed_rows: str = "exchanges the rows of `plan`, which are all"
    attention: str | None = None
    combine: str | None = None


@dataclass(frozen=True)
class Traits:
    """What follows from a system's knobs alone.

    overlaps       whether, as published, what it sends travels while it computes (a replay's
                   `overlap=published`)
    steps          optimiser steps per epoch; those of mini-batches are `BatchSystem.steps`
    ineffective    a sentence for each knob that was given and, beside the others, changes nothing: its name,
                   its value and why. They are shown as warnings before workers start
    follows_epochs whether what an epoch does depends on how many the whole run has: such a run cannot be
                   extended
    straggler      the worker that knobs of its own slow down; None where there is none
    devices        whether it reads the workers' devices (`harness.core.mixins.FitsDevices`): they are then
                   there, measured where the run's cluster names none
    sparse_features  whether an `input_halo` of its own takes large features of words as compressed rows
    rows, features_wire, combine   what the run has where it does not say: "all" or "needed" rows, features
                   that travel "dense", "sparse" or "auto", and how gradients become a step
    """

    overlaps: bool = False
    steps: int = 1
    ineffective: list[str] = field(default_factory=list)
    follows_epochs: bool = False
    straggler: Straggler | None = None
    devices: bool = False
    sparse_features: bool = False
    rows: str = "all"
    features_wire: str = "dense"
    combine: Combine = field(default_factory=Exact)
