"""What a system is told: of the run, before it starts, and of the worker, before its first epoch."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

import torch
from typing_extensions import TypeVar

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.recorder import Recorder
from harness.core.adjacency import Adjacency, Propagation
from harness.core.combine import Combiner
from harness.core.needed import PerLayer
from harness.core.optimisers import Adam, Optimiser
from harness.data.partition.shard import ReplicaShard, Shard

# What a system trains on: an edge-cut's, unless it is a `ReplicaSystem`.
S = TypeVar("S", bound=Shard | ReplicaShard, default=Shard)
A = TypeVar("A", bound=Propagation | PerLayer, default=Adjacency)


@dataclass
class RunFacts:
    """What `System.supports` may look at, beside knobs, to say whether the system can do a run."""

    model: str  # its name
    matrix: bool  # the model's layers are of the form A H W
    num_workers: int
    symmetric: bool  # every edge u -> v of the graph has its reverse, with the same weight
    multilabel: bool  # vertices have several labels
    weighted: bool = False  # edges have weights other than 1
    optimiser: Optimiser = field(default_factory=Adam)
    scheduled: bool = False  # the learning rate differs between epochs
    norm: str = "none"  # between the model's layers
    patience: int = 0  # evaluations, of early stopping
    wire: str = "float32"  # what rows travel as
    input_dropout: float = 0.0  # of the features
    rows: str = "all"  # that training computes: "all", or "needed" by the loss
    layers: int = 2
    combine: str = "exact"  # how gradients become a step: the class's name, in small letters
    fewer_rows: bool = True  # whether the model's layers give fewer rows than they take, where asked to
    features_wire: str = "dense"  # how features that are fetched once travel
    labels: bool = False  # training vertices show their labels to layer 0 (`labels=masked`)


@dataclass(kw_only=True)
class Context(Generic[S, A]):
    """What a system is given once, before the first epoch.

    widths   [L + 1]: features, hidden layers, classes; layer l maps widths[l] to widths[l + 1]
    epochs   of the whole run; of a resumed run too
    model    the worker's copy of the model; its parameters may be read and, between steps, written
    gradient  gradient(rows, divisor) -> loss: one more forward and backward pass by this system over the
             given training rows, whose summed loss is divided by `divisor`; gradients are left in the
             parameters. For systems with extra steps; exact_gradient(rows, divisor, masks=None) does the
             same through a fresh exchange of every halo row, with the dropout masks of the epoch's forward
             pass number `masks` where given
    exact_inputs   exact_inputs() -> {layer: H [n, F]}: what hidden layers 1.. would take in an exact forward
             pass with the current weights and no dropout; outside the train clock only
    new_optimiser   new_optimiser(parameters, lr=None) -> another optimiser of the run's kind, for systems
             that step more than one set of moments; it follows the run's schedule; lr None: the run's
    plans    [L]: who sends whom which rows of the input of layer l: `plan` for each, or fewer rows where
             training takes those that the loss needs (`adjacency.at(l)` then has these too)
    matrix   whether the model's layers are of the form A H W
    additive  whether the loss of one label per vertex cannot see a shift common to a row of what the last
             layer propagates (`ModelConfig.additive`)
    keeps_rows  whether what is kept of layer 0 are its rows rather than A X (`StaticInput`)
    combiner   what sums gradients over the workers, as the run's `combine` does
    features_wire   how features that are fetched once travel: "dense", "sparse" or "auto"
    closing  what is given to it (`closing.callback(store.close)`) is called after the last epoch, in the
             opposite order: for what the operating system or a server holds
    chosen   by name, what knobs that were left to the system (`null`) became, for resolved.json: filled in
             `setup`, with values as JSON has them
    """

    shard: S
    comm: Comm
    plan: HaloPlan
    plans: list[HaloPlan]
    adjacency: A
    widths: list[int]
    recorder: Recorder
    device: torch.device
    seed: int
    model: torch.nn.Module
    matrix: bool
    additive: bool
    keeps_rows: bool
    optimiser: torch.optim.Optimizer
    new_optimiser: Callable[..., torch.optim.Optimizer]
    combiner: Combiner
    features_wire: str
    train_rows: torch.Tensor  # [t] int64 local rows of this worker's training vertices
    epochs: int
    gradient: Callable[[torch.Tensor, float], torch.Tensor]
    exact_gradient: Callable[..., torch.Tensor]
    exact_inputs: Callable[[], dict[int, torch.Tensor]]
    closing: contextlib.ExitStack
    chosen: dict[str, Any]

    @property
    def num_layers(self) -> int:
        return len(self.widths) - 1
