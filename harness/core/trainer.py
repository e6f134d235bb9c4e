"""The epoch: what every system shares, and the only place where an epoch is timed."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from harness.base.errors import InputError
from harness.base.machine import out_of_memory
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.core.batches import Batch, BatchSystem, too_large
from harness.core.cluster import Cluster, Device
from harness.core.combine import Combine
from harness.core.config import EvaluateConfig, ModelConfig
from harness.core.context import Context
from harness.core.counted import Score
from harness.core.counting import lost, stepped
from harness.core.cuts import EdgeCut, make_cut
from harness.core.dropout import dropout_key
from harness.core.evaluate import EarlyStopping, Evaluator, local_loss, targets
from harness.core.features import given
from harness.core.inputs import Static
from harness.core.kernels.spmm import Kernel, make_kernel
from harness.core.masked_labels import LabelInput, MaskedLabels
from harness.core.mixins import BesideClock, FitsDevices, OwnLoss, WeighsLoss, evaluation_weights
from harness.core.models import Model
from harness.core.optimisers import Optimiser
from harness.core.order import Order
from harness.core.propagate import HaloDropout, Strategy, WrongRows
from harness.core.schedules import Constant, Schedule
from harness.core.scores import Scores
from harness.core.straggler import Straggler
from harness.core.system import AnySystem, asked_once
from harness.data.partition.shard import ReplicaShard, Shard


class Trainer:
    """One worker's training run: shard, model, optimiser and system, epoch by epoch.

    epochs   of the whole run: for schedules, and systems whose knobs follow it
    evaluate   threshold and patience; None: their defaults
    scores     what is scored beside accuracy, AUC and balanced accuracy, by name
    schedule   the learning rate of each epoch; None: the optimiser's own in all of them
    kernel   the sparse kernel, or its name, see `harness.core.kernels.spmm.make_kernel`
    cluster  what the workers run on, one device per worker; None: devices of one kind and unknown speed
    order    which side of A X W is multiplied first; None: the cheaper by the fixed table of costs
    rows     "all", or "needed": those that the loss needs; None: the system's own choice
    combine  how gradients become a step of the weights; None: the system's own choice
    features_wire  how features that are fetched once travel (`harness.comm.sparse`); None: the system's own
    straggler  a worker that is slowed down; None: no worker
    labels   which training vertices show their labels to layer 0; None: none (`harness.core.masked_labels`)
    """

    def __init__(
        self,
        shard: Shard | ReplicaShard,
        comm: Comm,
        system: AnySystem,
        model: ModelConfig,
        optimiser: Optimiser,
        *,
        seed: int,
        epochs: int,
        schedule: Schedule | None = None,
        evaluate: EvaluateConfig | None = None,
        scores: Mapping[str, Score] | None = None,
        kernel: str | Kernel = "auto",
        cluster: Cluster | None = None,
        order: Order | None = None,
        rows: str | None = None,
        combine: Combine | None = None,
        features_wire: str | None = None,
        straggler: Straggler | None = None,
        labels: MaskedLabels | None = None,
    ):
        # This worker's part of the graph: its cut, and the rows and labels that its loss counts.
        device = comm.device
        if isinstance(system, FitsDevices):
            system.cluster = cluster or Cluster(devices=[Device() for _ in range(comm.size)])
        self.shard, self.comm, self.system, self.seed, self.config = shard, comm, system, seed, model
        self.recorder: Recorder = comm.recorder
        self.kernel = make_kernel(kernel, device) if isinstance(kernel, str) else kernel
        self.kernel.order, self.kernel.recorder = order or Order(), comm.recorder
        x = given(shard.features, device)
        self.labels = targets(shard.labels, device)
        masks = [
            torch.as_tensor(mask).to(device).nonzero().squeeze(1)
            for mask in (shard.train, shard.val, shard.test)
        ]
        traits = system.traits()
        features_wire = features_wire or traits.features_wire
        needed = (rows or traits.rows) == "needed"
        widths = [x.shape[1]] + [model.hidden] * (model.layers - 1) + [shard.num_classes]
        cut = self.cut = make_cut(shard, comm, system, model, self.kernel, x, features_wire, needed, widths)
        self.train_rows, self.train_count = masks[0], int(shard.split_counts[0])
        self.targets = self.labels  # of the rows that training takes
        if cut.rows is not None:
            self.targets = self.labels[cut.rows]
            self.train_rows = torch.arange(len(masks[0]), device=device)
        # The model, the same on every worker, and what steps it.
        self.model = Model(model, widths, seed).to(device)
        self.label_input: LabelInput | None = None
        if labels is not None:
            assert isinstance(cut, EdgeCut), "systems over a vertex-cut refuse it"
            own, count = masks[0], self.train_count
            self.label_input = LabelInput(
                labels, self.model, cut, self.train_rows, own, self.labels[own], count, widths, seed
            )
        self.recipe, self.schedule, self.epochs = optimiser, schedule or Constant(), epochs
        self.rates: list[tuple[torch.optim.Optimizer, float]] = []  # each optimiser's, before the schedule
        self.combiner = (combine or traits.combine).make(self.parameters, comm, seed)
        self.optimiser = self.new_optimiser(self.combiner.trained)
        self.straggler = straggler
        self.passes = 0  # forward passes of the running epoch
        self.seeds = 0  # of the running epoch's mini-batches, on this worker
        self.static: Static | None = None
        self.exact_static: Static | None = None  # of a system's extra, exact steps
        # The system, which is given all of this once, and the exact evaluation beside it.
        self.closing = contextlib.ExitStack()  # what systems give back at the end
        self.chosen: dict[str, Any] = {}  # by name, knobs that were left to the system
        system.setup(
            Context(
                shard=cut.shard,
                comm=comm,
                plan=cut.plan,
                plans=cut.plans,
                adjacency=cut.adjacency,
                widths=widths,
                recorder=self.recorder,
                device=device,
                seed=seed,
                model=self.model,
                matrix=model.matrix,
                additive=model.additive,
                keeps_rows=not model.matrix or model.input_dropout > 0,
                optimiser=self.optimiser,
                new_optimiser=self.new_optimiser,
                combiner=self.combiner,
                features_wire=features_wire,
                train_rows=self.train_rows,
                epochs=epochs,
                gradient=self.gradient,
                exact_gradient=self.exact_gradient,
                exact_inputs=self.exact_inputs,
                closing=self.closing,
                chosen=self.chosen,
            )
        )
        self.loss_weights: torch.Tensor | None = None  # [t], of `train_rows`; None: all 1
        if isinstance(system, WeighsLoss):
            self.train_rows, self.targets, self.loss_weights = system.loss_rows()
        evaluate = evaluate or EvaluateConfig()
        self.evaluator = Evaluator(
            cut.exact_forward("evaluate"),
            comm,
            lambda: cut.exact_input("evaluate", self.static),
            masks,
            self.labels,
            model.layers,
            evaluate.cut,
            scores or {},
            None if self.label_input is None else self.label_input.of_all,
        )
        self.stopping = EarlyStopping(evaluate.patience)
        self.two_classes = self.labels.ndim == 1 and shard.num_classes == 2
        self.began = False
        self.next_epoch = 0  # of this worker: in an asynchronous run each counts its own

    @property
    def train_share(self) -> float:
        """This worker's share of all training vertices."""
        return len(self.train_rows) / self.train_count

    def new_optimiser(
        self, parameters: Iterable[torch.nn.Parameter], lr: float | None = None
    ) -> torch.optim.Optimizer:
        """Another optimiser of the run's kind, of `parameters`, with a state of its own and the learning rate
        `lr` (None: the run's). It follows the run's schedule."""
        rate = self.recipe.lr if lr is None else lr
        made = self.recipe.make(parameters, rate)
        self.rates.append((made, rate))
        return made

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        system = self.system
        return system.steps() if isinstance(system, BatchSystem) else system.traits().steps

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.model.parameters())

    def train_epoch(self, epoch: int) -> torch.Tensor:
        """One full-batch step, or all steps of a system that trains on mini-batches. Returns this worker's
        share of the loss, that of each step taken before its update; shares add up over workers."""
        self.recorder.begin_epoch(epoch)
        self.passes, self.seeds, self.next_epoch = 0, 0, epoch + 1
        factor = self.schedule.factor(epoch, self.epochs)
        for optimiser, rate in self.rates:
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        if not self.began:
            self.began = True
            with self.recorder.clock("evaluate"):
                if isinstance(self.system, BesideClock):
                    self.system.before_training()
        for layer, rows in enumerate(self.cut.taken):
            self.recorder.metric("needed_rows", rows, layer)
        with self.recorder.train():
            self.combiner.begin(epoch)
            if self.straggler is not None:
                self.straggler.begin()
            self.system.before_epoch(epoch)
            loss = torch.zeros((), device=self.comm.device)
            steps = self.system.steps() if isinstance(self.system, BatchSystem) else 1
            for step in range(steps):
                self.recorder.segment("compute", "forward", 0)
                loss = loss + self._pass(epoch, step)
                if self.straggler is not None and step == steps - 1:
                    self.straggler.hold(self.comm, self.seed, epoch + 1)
                self.recorder.segment("compute", "combine")
                self.system.combine(self.parameters)
                self.recorder.segment("compute", "optimiser")
                self.optimiser.step()
                self.recorder.work(*stepped(self.optimiser))
            self.combiner.spread()
            self.system.after_epoch(epoch)
            if isinstance(self.system, BatchSystem):
                self.recorder.metric("seeds", self.seeds)
        self.comm.look()
        with self.recorder.clock("evaluate"):
            if isinstance(self.system, BesideClock):
                self.system.observe(epoch)
        return loss

    def _pass(self, epoch: int, step: int) -> torch.Tensor:
        """A step's forward and backward pass. Returns this worker's share of the loss, detached; gradients
        are left in the parameters."""
        if not isinstance(self.system, BatchSystem):
            if self.label_input is not None:
                return self.gradient(*self.label_input.begin(epoch))
            divisor: float = self.train_count
            if isinstance(self.system, OwnLoss):
                divisor = self.system.loss_divisor(len(self.train_rows), self.train_count)
            return self.gradient(self.train_rows, divisor) * (divisor / self.train_count)
        batch: Batch | None = None
        try:
            batch = self.system.make_batch(epoch, step)
            if batch is not None:
                self.seeds += len(batch.labels)
                divisor = batch.total if batch.divisor is None else batch.divisor
                share = divisor / self.system.seeds_per_epoch(self.train_count)
                return self._batch_gradient(batch, divisor, epoch, step) * share
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise InputError(too_large(self.system, batch, epoch, step)) from error
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        return torch.zeros((), device=self.comm.device)

    def _batch_gradient(self, batch: Batch, divisor: float, epoch: int, step: int) -> torch.Tensor:
        assert isinstance(self.system, BatchSystem)
        strategy = self.system.strategy(batch)
        drops = [
            block.dropout(rate, dropout_key(self.seed, epoch, l, step))
            for l, (rate, block) in enumerate(zip(self._rates(), batch.blocks))
        ]
        logits = self.model(batch.x, batch.static, strategy, drops)
        seeds = torch.arange(len(batch.labels), device=logits.device)
        loss = local_loss(logits, batch.labels, seeds, divisor, batch.weights)
        return self._backward(loss, logits, len(seeds), strategy)

    def gradient(self, rows: torch.Tensor, divisor: float) -> torch.Tensor:
        """One forward and backward pass by the system: the summed loss of `rows` [t] over `divisor`,
        detached; gradients are left in the parameters."""
        if self._keeps_input and self.static is None:
            self.static = self.cut.training_input()
        return self._gradient(rows, divisor, self.static, self.system)

    def exact_gradient(self, rows: torch.Tensor, divisor: float, masks: int | None = None) -> torch.Tensor:
        """As `gradient`, through a fresh and exact exchange of every halo row, whatever the system trains on.

        masks   number of the epoch's forward pass whose dropout masks are used again; None: new ones
        """
        if self.system.features == "once" and self.exact_static is None:
            self.exact_static = self.cut.exact_input("features")
        return self._gradient(rows, divisor, self.exact_static, self.cut.exact_forward("halo"), masks)

    def _gradient(
        self,
        rows: torch.Tensor,
        divisor: float,
        static: Static | None,
        strategy: Strategy,
        masks: int | None = None,
    ) -> torch.Tensor:
        step = self.passes if masks is None else masks
        self.passes += masks is None
        # No layer reads the features where there is a static input.
        if self.label_input is not None:
            x = self.label_input.of_epoch()
        else:
            x = self.cut.x if static is None else torch.empty(0, device=self.comm.device)
        with asked_once(self.system, self.passes == 1):
            logits = self.model(x, static, strategy, self._dropouts(self.recorder.epoch.epoch, step))
        weights = self.loss_weights if rows is self.train_rows else None
        loss = local_loss(logits, self.targets, rows, divisor, weights)
        return self._backward(loss, logits, len(rows), strategy)

    def _backward(
        self, loss: torch.Tensor, logits: torch.Tensor, rows: int, strategy: Strategy
    ) -> torch.Tensor:
        """Compute the gradients of `loss`, which counts `rows` rows of the logits; returns it, detached."""
        ahead, back = lost(rows, logits)
        self.recorder.work(ahead)
        self.model.zero_grad()
        self.recorder.segment("compute", "backward", len(self.model.layers) - 1)
        self.recorder.work(back)
        try:
            loss.backward()
        except WrongRows as wrong:
            raise InputError(f"{strategy.name}, backward pass, worker {self.comm.rank}: it {wrong}") from None
        return loss.detach()

    def exact_inputs(self) -> dict[int, torch.Tensor]:
        """{layer: H [n, F]} that layers 1.. take in an exact forward pass with the current weights, without
        dropout."""
        kept = self.evaluator.hidden(self.model)
        self.evaluator.input = None  # made again from what training fetches and counts
        return kept

    def global_loss(self, local: torch.Tensor | float) -> float:
        """The mean loss over the global training vertices, from every worker's share."""
        return self.start_global_loss(local)()

    def start_global_loss(self, local: torch.Tensor | float) -> Callable[[], float]:
        """Start the sum of `global_loss`; the function returned waits for it and gives the mean."""
        flight, total = self.comm.start_total([float(local)])

        def loss() -> float:
            flight.wait()
            return float(total)

        return loss

    def evaluate(self) -> Scores:
        """Exact scores of every split under the current weights."""
        epoch = self.recorder.epoch.epoch
        with self.recorder.clock("evaluate"), evaluation_weights(self.system, epoch):
            return self.evaluator(self.model)

    def ends_early(self, scores: Scores) -> bool:
        """Whether the run ends with this evaluation. Ask once per evaluation, in order: each is counted."""
        return self.stopping.over(scores.leading(self.two_classes))

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "combiner": self.combiner.state_dict(),
            "system": self.system.state_dict(),
            "exact_static": self.exact_static is not None,
            "stopping": (self.stopping.best, self.stopping.without_better),
            "next_epoch": self.next_epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.combiner.load_state_dict(state["combiner"])
        self.system.load_state_dict(state["system"])
        self.began, self.next_epoch = True, state["next_epoch"]
        self.stopping.best, self.stopping.without_better = state["stopping"]
        if self._keeps_input:
            # What was fetched and counted before the stop is fetched again, outside the clock.
            self.static = self.cut.training_input()
        if state["exact_static"]:
            self.exact_static = self.cut.exact_input("features")

    @property
    def _keeps_input(self) -> bool:
        """Whether training keeps layer 0's static input; mini-batches have another in every step, and masked
        labels in every epoch."""
        changes = isinstance(self.system, BatchSystem) or self.label_input is not None
        return self.system.features == "once" and not changes

    def _rates(self) -> list[float]:
        return [self.config.input_dropout] + [self.config.dropout] * (len(self.model.layers) - 1)

    def _dropouts(self, epoch: int, step: int) -> list[HaloDropout]:
        return [
            self.cut.dropout(rate, dropout_key(self.seed, epoch, l, step), l)
            for l, rate in enumerate(self._rates())
        ]
