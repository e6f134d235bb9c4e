"""The contract between the shared trainer and a communication strategy.

The core owns graph, layers, loss, optimiser, weight all-reduce and clock. A system answers what its paper
answers:

    halo(layer, h)       which remote rows does layer `layer` use now?   (differentiable: what happens to
                         their gradients is part of the answer)
    synchronize(layer, z)   over a vertex-cut, in place of `halo`: which sum over replicas does each worker
                            use now?   (differentiable too)
    before_epoch / after_epoch   what changes between epochs?
    combine(parameters)  how are parameters combined?

A system is a dataclass: its fields are its knobs, the values stand in `conf/system/`. Each field states the
numbers or words that it takes (`harness.base.bounds`); `__post_init__` raises InputError for other mistakes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias

import torch

from harness.base.bounds import ROUNDS, bounds_of
from harness.base.errors import InputError
from harness.base.target import target_of
from harness.comm.flight import HaloPlan
from harness.comm.sparse import fetch_halo
from harness.core.combine import Combine, Exact
from harness.core.context import A, Context, RunFacts, S
from harness.core.order import FEATURES, HIDDEN, Passes
from harness.core.propagate import HaloDropout, Strategy, checked
from harness.core.replicas import ReplicaAdjacency, propagate_parts
from harness.data.partition.shard import ReplicaShard


@dataclass(frozen=True)
class Refuses:
    """Why a system cannot do what a run may ask for. Each field is the rest of a sentence that begins with
    the system's name, as "quantises what it sends"; "" says that the system can do it.

    wire         another `wire` than float32. A system can where `comm` sends all its rows
    needed_rows  `rows=needed`. A system can where it exchanges the rows of `plans[layer]`
    attention    a model without a propagation matrix. None: it can unless it defines its own `propagate`
    combine      another `combine` than exact. None: it can unless it defines its own `combine`. A system
                 whose own `combine` hands its gradients to `combiner` can too, and says so by ""
    features_wire  another `features_wire` than dense. A system can where it fetches layer 0's rows by
                 `harness.comm.sparse`, as the default `input_halo` does
    batch_norm   `model.norm=batch`, whose statistics are of all rows. A system can where all workers compute
                 a layer together
    labels       `labels=masked` (`harness.core.masked_labels`). A system can where it asks for layer 0's rows
                 in every epoch, as it asks for those of hidden layers, and where their gradients come back
    """

    wire: str = ""
    needed_rows: str = "exchanges the rows of `plan`, which are all"
    attention: str | None = None
    combine: str | None = None
    features_wire: str = ""
    batch_norm: str = ""
    labels: str = "does not say that it exchanges layer 0's rows and their gradients in every epoch"


@dataclass(frozen=True)
class Traits:
    """What follows from a system's knobs alone.

    overlaps       whether, as published, what it sends travels while it computes (a replay's
                   `overlap=published`)
    steps          optimiser steps per epoch; those of mini-batches are `BatchSystem.steps`
    ineffective    one sentence for each knob that was given but changes nothing beside the others, with its
                   name, its value and the reason. They are shown as warnings before workers start
    follows_epochs whether what an epoch does depends on how many the whole run has: such a run cannot be
                   extended
    devices        whether it reads the workers' devices (`harness.core.mixins.FitsDevices`). The run then has
                   them: its cluster names them, or they are measured
    sparse_features  whether the system's own `input_halo` takes compressed rows, as large bags of words are
                   kept
    rows, features_wire, combine   what a run uses whose config does not say: "all" or "needed" rows, features
                   that travel "dense", "sparse" or "auto", and how gradients become a step
    """

    overlaps: bool = False
    steps: int = 1
    ineffective: list[str] = field(default_factory=list)
    follows_epochs: bool = False
    devices: bool = False
    sparse_features: bool = False
    rows: str = "all"
    features_wire: str = "dense"
    combine: Combine = field(default_factory=Exact)


class Ready:
    """Halo rows that are already here."""

    def __init__(self, rows: torch.Tensor):
        self.rows = rows

    def wait(self) -> torch.Tensor:
        return self.rows


class System(Strategy, Generic[S, A]):
    """Base of every communication strategy over an edge-cut partition; over a vertex-cut it is
    `ReplicaSystem`.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # every system is a dataclass
    # OmegaConf, which makes systems from their yaml, takes a generic class's arguments for those of a dict.
    __args__: ClassVar[tuple[Any, Any]] = (Any, Any)

    cut: ClassVar[str] = "edge"  # the kind of partition it trains on
    degrees: ClassVar[str] = "global"  # "local": cut edges are dropped and degrees counted inside each worker
    # how often an epoch runs layer 0's products, and a hidden layer's: what `order=auto` goes by
    passes: ClassVar[tuple[Passes, Passes]] = FEATURES, HIDDEN
    # "refetch": layer 0's remote rows are asked for every epoch; "once": fetched once, static
    features: str = "once"
    # whether the static input product equals the exact one (evaluation reuses it)
    exact_input: ClassVar[bool] = True
    # in comparisons: "reference" of exact training, or "control" that uses no remote rows
    role: ClassVar[str] = ""
    # knobs at which it is exact full-graph training (`harness.dev.conformance` holds it to that); None: none
    exact: ClassVar[dict[str, Any] | None] = None
    # what of a run it cannot do, and why
    refuses: ClassVar[Refuses] = Refuses()

    @classmethod
    def _missing_method(cls) -> str | None:
        """The method that a system must define and this one does not, or not with these arguments; None
        where it is complete."""
        if cls.propagate is not System.propagate:
            return None
        try:
            inspect.signature(cls.halo).bind(None, 0, None)
        except TypeError:
            return "halo(self, layer, h)"
        return "halo(self, layer, h)" if cls.halo is System.halo else None

    def supports(self, run: RunFacts) -> str | None:
        """One sentence saying why this system cannot do the run, or None.

        A system that defines its own `propagate` computes Z = A H W, and attention is not of that form. An
        override ends in `super().supports(run)`.
        """
        if not run.matrix and run.weighted:
            return (
                f"model={run.model} weighs neighbours by attention alone, and the edges of this graph have"
                " weights; give model=gcn or model=sage, or leave edge_weight out of the file"
            )
        name, refuses = display_name(self), self.refuses
        if run.wire != "float32" and refuses.wire:
            return f"wire={run.wire} cannot be: {name} {refuses.wire}; give wire=float32"
        if run.features_wire != "dense" and refuses.features_wire:
            said = f"{name} {refuses.features_wire}"
            return f"features_wire={run.features_wire} cannot be: {said}; give features_wire=dense"
        if run.rows == "needed" and (reason := self._needs_every_row(run)):
            return f"rows=needed cannot be: {reason}; give rows=all"
        if run.labels and (reason := self._keeps_layer_0(run)):
            return f"labels=masked cannot be: {reason}"
        if run.norm == "batch" and refuses.batch_norm:
            return f"model.norm=batch cannot be: {name} {refuses.batch_norm}; give model.norm=layer"
        own = refuses.combine
        if own is None:
            own = "" if type(self).combine is System.combine else "combines in a way of its own"
        if run.combine != "exact" and own:
            return f"combine={run.combine} cannot be: {name} {own}; give combine=exact"
        own = refuses.attention
        if own is None:
            own = "" if type(self).propagate is System.propagate else "defines its own product with one"
        if not run.matrix and own:
            return (
                f"model={run.model} has no propagation matrix, and {name} {own}; give model=gcn or model=sage"
            )
        return None

    def _needs_every_row(self, run: RunFacts) -> str:
        """Why a run cannot compute and exchange the rows alone that the loss needs; "" where it can."""
        if self.refuses.needed_rows:
            return f"{display_name(self)} {self.refuses.needed_rows}"
        if run.norm == "batch":
            return "model.norm=batch takes statistics of all rows"
        return "" if run.fewer_rows else f"the layers of model={run.model} give as many rows as they take"

    def _keeps_layer_0(self, run: RunFacts) -> str:
        """Why layer 0's input cannot change in every epoch, and what to give; "" where it can."""
        if self.refuses.labels:
            return f"{display_name(self)} {self.refuses.labels}; leave labels out"
        if run.multilabel:
            return "vertices of this graph have several labels, and it shows one; leave labels out"
        if self.features == "once" and "features" in self.__dataclass_fields__:
            return "features=once keeps layer 0's rows of the first epoch; give system.features=refetch"
        return ""

    def traits(self) -> Traits:
        """What follows from its knobs alone, before anything runs."""
        return Traits()

    def repeats(self, epochs: int) -> tuple[int, int]:
        """The epoch from which on a run of so many epochs repeats itself, and after how many epochs each
        time: a plan looks no further. By default epoch 1, and the largest knob with the bound ROUNDS."""
        if self.traits().follows_epochs:
            return epochs, 1
        cls: type = type(self)
        counts = [key for key, bounds in bounds_of(cls).items() if getattr(bounds, "high", 0) == ROUNDS]
        return 1, max([getattr(self, key) or 1 for key in counts], default=1)

    def setup(self, context: Context[S, A]) -> None:
        """Keep what is needed and allocate state. Overridden methods call this one first."""
        self.name = f"system {target_of(type(self))}"  # in messages
        self.shard, self.comm = context.shard, context.comm
        self.plan, self.plans = context.plan, context.plans
        self.adjacency, self.widths, self.recorder = context.adjacency, context.widths, context.recorder
        self.device, self.seed, self.num_layers = context.device, context.seed, context.num_layers
        self.combiner, self.features_wire = context.combiner, context.features_wire

    def input_halo(self, x: Any) -> Any:
        """The halo's raw features [m, F] for `features="once"`: fetched exactly, once, and counted then.

        x   [n, F] this worker's own features: dense, or compressed rows (`Csr`), and then the halo's are
            compressed too. An override gets compressed rows only where `traits().sparse_features` is true
        """
        return self._features_of(self.plans[0], x)

    def _features_of(self, plan: HaloPlan, x: Any) -> Any:
        """The remote features [m, F] of `plan`, given this worker's own x [n, F]; they travel as
        `features_wire` says."""
        return fetch_halo(self.comm, plan, x, int(self.shard.sizes.max()), "features", self.features_wire)

    def before_epoch(self, epoch: int) -> None:
        """Called inside the train clock, before the forward pass."""

    def after_epoch(self, epoch: int) -> None:
        """Called inside the train clock, after the optimiser's step."""

    def combine(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the weight gradients over the workers; each worker's loss is already divided by the global
        count.
        """
        self.combiner.sum(gradients(parameters))

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on bit for bit: tensors, numbers, strings and containers of
        them.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""


class ReplicaSystem(System[ReplicaShard, ReplicaAdjacency]):
    """Base of every communication strategy over a vertex-cut partition.

    Its `shard` is a `ReplicaShard`, and its mirrors take the place of the halo in a halo plan. Rows [r, F]
    are those of all replicas, masters first.
    """

    cut: ClassVar[str] = "vertex"
    refuses: ClassVar[Refuses] = Refuses(
        wire="needs the same sums on all replicas of a vertex, and rounding would make them differ",
        needed_rows="needs the same sums on all replicas of a vertex",
        attention="adds up parts of A H W that workers compute from their own edges",
    )

    @classmethod
    def _missing_method(cls) -> str | None:
        own = cls.synchronize is not ReplicaSystem.synchronize or cls.propagate is not ReplicaSystem.propagate
        return None if own else "synchronize(self, layer, z)"

    def supports(self, run: RunFacts) -> str | None:
        if run.input_dropout and self.features == "once":
            return (
                f"model.input_dropout={run.input_dropout} makes another product of layer 0 in every epoch,"
                " and features=once keeps that of the first; give system.features=refetch"
            )
        return super().supports(run)

    def synchronize(self, layer: int, z: torch.Tensor) -> torch.Tensor:
        """The rows that the system uses as the sum over replicas of their parts z [r, f_out] of A H W; its
        backward pass does the same for delta = dL/dZ.
        """
        raise NotImplementedError

    def propagate(
        self, layer: int, h: torch.Tensor, weight: torch.Tensor, dropout: HaloDropout
    ) -> torch.Tensor:
        """The synchronised A H W  [r, f_out]."""
        parts = propagate_parts(self.adjacency, h, weight, dropout)
        return checked(self.synchronize(layer, parts), tuple(parts.shape), parts, "rows, one per replica")


AnySystem: TypeAlias = System[Any, Any]  # over either kind of cut


def display_name(system: AnySystem) -> str:
    """A system's name in messages: NAME of `system=NAME`, or its class, in small letters, where it is no
    system of the tree."""
    package, _, module = type(system).__module__.rpartition(".")
    return module if package == "systems" else type(system).__name__.lower()


def gradients(parameters: Iterable[torch.nn.Parameter]) -> list[torch.Tensor]:
    """What the backward pass left in each of `parameters`."""
    grads = []
    for parameter in parameters:
        assert parameter.grad is not None, "the backward pass reaches every parameter"
        grads.append(parameter.grad)
    return grads


def without_effect(system: AnySystem, knobs: Iterable[str], why: str) -> list[str]:
    """A sentence for each of `knobs` whose value is not its default, ending in `why`: for
    `Traits.ineffective`."""
    defaults = {field.name: field.default for field in dataclasses.fields(system)}
    given = {name: getattr(system, name) for name in knobs if getattr(system, name) != defaults[name]}
    return [f"system.{name}={value} has no effect: {why}" for name, value in given.items()]


@contextlib.contextmanager
def asked_once(system: AnySystem, first: bool) -> Iterator[None]:
    """While this is open in the `first` forward pass, a model may ask for a layer's remote rows once, where
    the system keeps something from epoch to epoch: asked again it would find what it has just left. What a
    system's own `propagate` asks for is part of the model's one question. InputError where a layer asks
    twice."""
    asked: set[int] = set()
    answering = False

    def once(own: Callable[..., Any]) -> Callable[..., Any]:
        def asks(layer: int, *more: Any, **named: Any) -> Any:
            nonlocal answering
            if answering:
                return own(layer, *more, **named)
            if layer in asked:
                raise InputError(
                    f"layer {layer} of the model asks twice for remote rows in a forward pass, and"
                    f" {display_name(system)} keeps what it sends of a layer; give a system that keeps"
                    " nothing"
                )
            asked.add(layer)
            answering = True
            try:
                return own(layer, *more, **named)
            finally:
                answering = False

        return asks

    keeps = type(system).state_dict not in (System.state_dict, ReplicaSystem.state_dict)
    names = [name for name in ("propagate", "halo") if first and keeps and hasattr(system, name)]
    for name in names:
        setattr(system, name, once(getattr(system, name)))
    try:
        yield
    finally:
        for name in names:
            delattr(system, name)
