"""What few papers need beyond the contract of `harness.core.system`: a system derives from these too."""

import contextlib
from collections.abc import Iterator

import torch

from harness.comm.comm import Comm
from harness.core.cluster import Cluster
from harness.core.context import A, RunFacts, S
from harness.core.inputs import Static
from harness.core.needed import NeededRows
from harness.core.system import AnySystem, System, display_name
from harness.data.partition.shard import Shard


class SeesOutput:
    """Sees a layer's Z, or changes its gradient."""

    def output(self, layer: int, z: torch.Tensor) -> torch.Tensor:
        """A hook on a layer's pre-activation Z [n, f_out] and, through its backward, on delta = dL/dZ.

        What it returns takes the place of Z; InputError where that has another shape, type or device.
        """
        raise NotImplementedError


class OwnLoss:
    """A worker minimises a loss of its own, instead of its share of the mean over all training vertices."""

    def loss_divisor(self, local: int, total: int) -> float:
        """What this worker's summed training loss is divided by.

        local   training vertices of this worker
        total   of all workers: divided by it, losses add up to the global mean over workers
        """
        raise NotImplementedError


class WeighsLoss:
    """Its loss counts rows of its own choice, each with a weight."""

    def loss_rows(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The rows of the logits that count [t] int64, the targets of all rows (as `local_loss` takes them),
        and what the loss of each row that counts is multiplied by [t]; asked for once, after `setup`."""
        raise NotImplementedError


class KeepsInput:
    """Over a vertex-cut: says itself what is kept of layer 0 under `features="once"`."""

    def static_input(self, x: torch.Tensor) -> Static | None:
        """What is kept of layer 0 for all epochs, given the features x [r, f0] of all replicas; fetched and
        counted when this is first called. None: nothing is kept, layer 0 is computed as the others are, and
        the next epoch asks again."""
        raise NotImplementedError


class BesideClock:
    """Does something outside the train clock, so that no epoch is charged for it."""

    def before_training(self) -> None:
        """Called once before epoch 0: nothing is counted. A resumed run does not call it."""

    def observe(self, epoch: int) -> None:
        """Called after each epoch, whose metrics are still open."""


class FitsDevices:
    """Fits each worker's part to the device that it runs on. `Traits.devices` says whether it does.

    cluster   what the run's workers run on, one device per worker; set before `restrict`
    """

    cluster: Cluster

    def restrict(self, shard: Shard, comm: Comm) -> Shard:
        """The shard to train on: the worker's own, or one with halo vertices and their edges taken away
        (RAPA), agreed between the workers through `comm`. Evaluation always uses the whole."""
        raise NotImplementedError


class ComputesOthers:
    """Computes rows of other workers' vertices beside its own, in place of fetching them."""

    def rows_of_layers(
        self, shard: Shard, widths: list[int], needed: bool, comm: Comm
    ) -> tuple[Shard, NeededRows] | None:
        """`shard` with other workers' vertices added, and the rows that each layer takes and gives; None
        where no others' rows are computed in this run.

        The workers agree on the rows through `comm`. The shard's vertices are the worker's own, in their
        order, and then the others. Its `inner` and its `halo`, with their degrees, are both all of these
        vertices, and so are the rows and columns of `inner_edges` and of `halo_edges`, which may be one
        block. Features of others' rows are 0 until the system writes them, before layer 0 reads them.

        widths   [L + 1], as in `Context`
        needed   whether the last layer gives the training vertices alone; if not, all of the worker's own
        """
        raise NotImplementedError


class AsynchronousSystem(System[S, A]):
    """Base of systems whose workers meet at checkpoints and at the end only.

    Every worker makes epochs of its own ("rounds"), and an epoch of the run is P updates of the weights, from
    whichever workers they come. The workers meet when they see that the run has reached a checkpoint's epoch
    or its last. Each round reports in the metric "update" which update it made, counted from 0; a round whose
    update came after the last epoch made none, and reports none.
    """

    def epochs_done(self, epoch: int) -> int:
        """How many of the run's epochs are over when this worker's epoch `epoch` is."""
        raise NotImplementedError

    @contextlib.contextmanager
    def evaluation_weights(self, epoch: int) -> Iterator[None]:
        """While this is open the model holds the weights that epoch `epoch` of the run is evaluated with, the
        same on every worker; outside the train clock. Later epochs may have run."""
        raise NotImplementedError
        yield

    def supports(self, run: RunFacts) -> str | None:
        name = display_name(self)
        if run.scheduled:
            return (
                f"{name} has no epoch common to all workers that a schedule could go by; give"
                " schedule=constant schedule.warmup=0"
            )
        if run.patience:
            return (
                f"{name} is evaluated after its workers have gone on, and cannot be stopped early; give"
                " evaluate.patience=0"
            )
        if run.norm == "batch":
            return (
                f"{name} has no pass common to all workers that model.norm=batch could take statistics of;"
                " give model.norm=layer"
            )
        return super().supports(run)


def evaluation_weights(system: AnySystem, epoch: int) -> contextlib.AbstractContextManager[None]:
    """While this is open the model holds the weights that epoch `epoch` of the run is evaluated with."""
    if isinstance(system, AsynchronousSystem):
        return system.evaluation_weights(epoch)
    return contextlib.nullcontext()
