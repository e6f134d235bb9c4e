"""DIGEST-A: the asynchronous form of DIGEST (Chai, Bai, Zhao, Cheng, "Distributed Graph Neural Network
Training with Periodic Stale Representation Synchronization", 2022; sections 3.2 and 4.3, appendix A,
Theorem 3 and its proof).

Implements Algorithm 1 without the loop over global rounds: worker m, by itself,

    downloads W^(t) from the parameter server, and every N rounds of its own pulls Ht_out (lines 4-6)
    computes eq. 5 forward, its own loss and gradient, and every N rounds pushes H_in (lines 7-10)
    uploads the gradient; the server takes a step with it when it arrives (lines 12 and 13)

        W^(t+1) = W^(t) - eta grad L_m(W^(t-tau))                (proof of Theorem 3)

Notation: as in systems/digest.py; k a worker's own round, counted from 1; t the updates that the server has
applied; the delay tau of an update is how many of them came since the worker downloaded (Theorem 3 assumes
tau < K; nothing bounds it here).

Decisions
- update=gradient: the server has one Adam, with the run's learning rate and weight decay, and takes a step
  with each worker's gradient when it arrives, no barrier; the delay is logged. `delta`: a worker takes a
  local Adam step, with moments of its own, and uploads the change of its weights, which the server adds.
- schedule: the default of systems/digest.py by a worker's own rounds: push at the end of round k when
  k % N == 0, pull at the start of round k + 1.
- `scale` multiplies what is uploaded: 1, or 1/M. Adam divides by the gradient's own size, so that under
  update=gradient the scale moves little more than what weight decay and Adam's epsilon weigh beside the
  gradient.
- an upload is answered with the weights, the worker's next download. Beside each of the two go 8 bytes
  (`stamps`), the version of the weights, also in rounds without a pull.
- the run ends when the server has applied epochs x M updates, and until then every worker goes on: a fast
  worker makes more rounds than `epochs`, a slow one fewer. Epoch e is the updates e M to (e + 1) M, and is
  evaluated on the server's weights after them, when the workers have met; `server_s` says when the server
  had them. The rounds under way when the run ends are finished, traced, and not applied.
- a worker's rounds are traced as its epochs, by round, with its own share of the loss; the run's epochs
  stand in rows of their own (docs/trace.md, asynchronous runs).
- a pull takes what every owner pushed last (`stamps`, 8 bytes per owner, say which that was). A push's
  stamp is the version of the weights it was computed with, so that staleness is counted in updates of the
  server, M of them to a round; it is negative where an owner was ahead of the reader.
- workers meet when the server reaches a checkpoint's epoch, and at the end: with a straggler give
  checkpoint_every=0 to measure time.
- order=rotation: the server applies worker 0's update, then 1's, ..., M - 1's, and again, every worker
  makes `epochs` rounds, and a pull sees exactly the pushes of the updates that its worker's weights hold.
  Nothing then depends on timing, so a run repeats and resumes bit for bit (tests use it).
- features, start, loss: as in systems/digest.py; at start=zeros the store begins with rows of 0, which the
  first round pulls; `features=refetch` is an exchange in every round, in which
  all workers meet, so that all make `epochs` rounds and nothing is asynchronous any more. Three slots per
  slice in the store: in rotation an owner may push while its push of two rounds ago is still being read.
- `server_s` is the clock to compare with others: seconds since the first update arrived. What has been
  trained is traced when the workers meet. The server's own CPU seconds stand in no worker's.
- the server has Adam and no other optimiser; with `update=delta` workers take steps of whatever the run's is.
  A schedule is refused: workers at rounds of their own have no common epoch that it could go by.
Departures: appendix A moves line 13 alone into the loop: a worker takes its own step (line 12; with Adam by
A.2) and uploads weights, which the server aggregates, how is not printed. Here the server takes the step
(update=gradient), which for a plain step is the proof's, and is not with Adam; `delta` is nearer to it. The
server is a process on worker 0's host, reached by a Unix socket; one host only.
"""

import contextlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import word
from harness.comm.parameters import Parameters
from harness.core.mixins import AsynchronousSystem
from harness.core.optimisers import Adam
from systems.parts.stale_system import REFUSES, StaleSystem


@dataclass
class DigestA(StaleSystem, AsynchronousSystem):
    """Beside the knobs of `StaleSystem`, whose rounds are a worker's own:

    update    what a worker uploads: "gradient", with which the server's Adam takes a step, or "delta", the
              change of weights by a local step, which the server adds
    scale     what an update is multiplied by: "1", or "1/M" where there are M workers
    order     in which the server applies updates: "arrival", as they come, or "rotation", worker after worker
    features  "once": layer 0's halo rows are fetched once; "refetch": in every round, in which all workers
              then meet
    """

    update: str = word("gradient", "delta")
    scale: str = word("1", "1/M")
    order: str = word("arrival", "rotation")

    refuses: ClassVar = REFUSES
    # In rotation, a worker may be reading the push of two rounds ago while its owner makes the next one.
    slots: ClassVar = 3

    def supports(self, run):
        if self.update == "gradient" and type(run.optimiser) is not Adam:
            return (
                "the server of system.update=gradient takes steps of Adam only; give optimiser=adam, or"
                " system.update=delta for steps of the workers' own"
            )
        return super().supports(run)

    @property
    def in_step(self) -> bool:
        """Whether every worker makes as many rounds as the others."""
        return self.order == "rotation" or self.features == "refetch"

    def setup(self, context):
        super().setup(context)
        self.weights, self.version = self.flat(self.values()), 0  # as downloaded; how many updates they hold
        scale = 1.0 if self.scale == "1" else 1.0 / self.comm.size
        adam = adam_of(context.optimiser) if self.update == "gradient" else None
        updates = context.epochs * self.comm.size
        self.server = Parameters(self.comm, self.weights, self.order, scale, adam, updates)
        context.closing.callback(self.server.close)
        self.evaluated: tuple[int, torch.Tensor] | None = None

    def before_training(self):
        n, widths = self.shard.num_inner, {l: rows.shape[1] for l, rows in self.representations.rows.items()}
        inputs = (
            self.context.exact_inputs()
            if self.start == "exact"
            else {layer: torch.zeros(n, width, device=self.device) for layer, width in widths.items()}
        )
        self.representations.begin(inputs, n)

    # -- a worker's round --

    def before_epoch(self, epoch):
        self.round = epoch + 1
        # `now` is the stamp of this round's pushes, by which their age is counted. Workers in step count
        # rounds. Others share no clock but the server's count of updates: their first weights have stamp 1,
        # since the start has 0.
        self.now = self.round if self.in_step else self.version + 1
        self.pulling = (self.round - 1) % self.interval == 0
        self.wanted = self.stamps()
        self.prefetch(1)

    def stamps(self) -> list[int | None]:
        """By owner, the round of the push that a pull takes; None: its latest push."""
        if self.order == "arrival":
            return [None] * self.comm.size
        # The weights of this round hold the updates up to this worker's own of round k - 1.
        done = [
            self.round - 1 if owner <= self.comm.rank else self.round - 2 for owner in range(self.comm.size)
        ]
        return [max(k, 0) // self.interval * self.interval for k in done]

    def pushes(self):
        return self.now if self.round % self.interval == 0 else None

    def combine(self, parameters):
        self.representations.report(self.now, 1 if self.in_step else self.comm.size)
        self.representations.pushed()
        if self.update == "gradient":
            self.gradient = self.flat([p.grad for p in parameters])
            for p in parameters:
                p.grad = None  # the worker's own optimiser then has nothing to do: the step is the server's

    def after_epoch(self, epoch):
        update = self.gradient if self.update == "gradient" else self.flat(self.values()) - self.weights
        self.weights, self.version, delay = self.server.update(update, epoch, self.version)
        self.put(self.weights)
        if delay is not None:
            self.recorder.metric("delay", delay)
            self.recorder.metric("update", self.version - 1)

    def epochs_done(self, epoch):
        return epoch + 1 if self.in_step else self.version // self.comm.size

    # -- the server's weights --

    @contextlib.contextmanager
    def evaluation_weights(self, epoch):
        if epoch < 0:
            yield
            return
        if self.evaluated is None or self.evaluated[0] != epoch:
            weights, when = self.server.snapshot(epoch)
            self.evaluated = (epoch, weights)
            self.recorder.metric("server_s", when)
        self.put(self.evaluated[1])
        try:
            yield
        finally:
            self.put(self.weights)

    def values(self) -> list[torch.Tensor]:
        """The model's weights, without autograd."""
        return [p.detach() for p in self.context.model.parameters()]

    @staticmethod
    def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    @torch.no_grad()
    def put(self, weights: torch.Tensor) -> None:
        """Copy weights, all in one vector as `flat` gives them, into the model."""
        parameters = list(self.context.model.parameters())
        for parameter, part in zip(parameters, weights.split([p.numel() for p in parameters])):
            parameter.copy_(part.view_as(parameter))

    def state_dict(self):
        return {
            **super().state_dict(),
            "weights": self.weights,
            "version": self.version,
            "server": self.server.read() if self.comm.rank == 0 else None,
        }

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.weights, self.version = state["weights"], state["version"]
        if self.comm.rank == 0:
            self.server.load(*state["server"])
        self.comm.barrier()


def adam_of(optimiser: torch.optim.Adam) -> dict[str, float]:
    """The settings of a worker's optimiser, for the server's."""
    of = optimiser.param_groups[0]
    return {
        "lr": of["lr"],
        "beta1": of["betas"][0],
        "beta2": of["betas"][1],
        "eps": of["eps"],
        "weight_decay": of["weight_decay"],
    }
