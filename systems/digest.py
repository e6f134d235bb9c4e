"""DIGEST: Chai, Bai, Zhao, Cheng, "Distributed Graph Neural Network Training with Periodic Stale
Representation Synchronization" (2022).

Implements Algorithm 1 in its synchronous form. In a round every worker pulls its halo's hidden rows from a
store, if the schedule has a pull (lines 5-6), and computes its layers with the halo rows that it pulled last
as constants; it pushes its own hidden rows to the store, if the schedule has a push (lines 9-10), and takes
the gradient of its own loss. Then the workers' gradients are averaged for one Adam step (line 13 averages
weights: see Departures). The layer is that of eq. 5

    H^(l+1)_in = sigma(P_in H^(l)_in W + P_out Ht^(l)_out W)

and the update that of Theorem 2's proof (appendix A.5.2)

    W^(r+1) = W^(r) - eta / M sum_m grad L_m(W^(r)).

Notation: r the round, counted from 1 (epoch r - 1); M workers; L_m the loss of worker m; H^(l)_in the rows
of the own partition, Ht^(l)_out the halo's, stale and constant; N the interval; the store keeps every
vertex's row of the L - 1 hidden layers (eq. 7).

Decisions
- the store holds the hidden layers; the halo's features are fetched once (`features=refetch`: every round,
  exact).
- start: the store begins with one exact forward pass, outside the clock, recorded as `start_bytes`;
  `zeros`: the halo is 0 until the first pull. Under `literal` with N > 1 the start is also read outside the
  clock, since Algorithm 1 pulls nothing before round N; those pulls are not in `start_bytes`, nor are the
  features that the exact forward pass exchanges, as it does in every evaluation.
- a layer joins own and halo rows by eq. 5, with the whole graph's degrees. Line 8's concatenation is not
  built: it gives a layer three weights whose meaning depends on the partition, another model than any other
  system trains.
- line 11 divides every row by its length, after the push of line 10, and in the last layer too. Here it is a
  part of the model, `model.norm=l2`, for every system alike: between layers only, and rows are pushed after
  it. The default is without it, and the page's picture shows both.
- line 12 updates a layer inside the forward pass: here one backward pass and one step per round.
- loss: the mean over the partition's training vertices (eq. 3 has all its vertices, of which only these have
  labels to learn from); `global` divides the sum by the number of
  training vertices of all workers.
- means over workers are unweighted; `weighting=train` weighs them by training vertices. Under `loss=global`,
  `aggregate=gradients` sums the gradients, which is the gradient of the global mean. With
  `aggregate=weights` it is refused: the mean of steps by parts of a loss is a part of the step.
- gradients to remote vertices: none, pulled rows are constants.
- two slots per slice in the store: a worker that is further on in a round pushes into one while a slower
  worker still pulls from the other.
Departures
- AGG: line 13 aggregates weights (appendix A: "all the model weights") after every worker's step, which A.2
  takes with Adam. Here the workers' gradients are averaged for one shared Adam step. For plain steps that
  start from the same weights the two are alike, which is what the proof writes; with Adam they are not.
  `aggregate=weights` is line 13 as printed: Adam steps with moments of their own, whose weights are averaged.
- schedule: Algorithm 1 pulls in round r when r % N == 0 what was pushed in rounds before r with
  (r - 1) % N == 0, so that rows are N - 1 to 2N - 2 rounds old (for N = 1: 1) and none is pulled before round
  N (`schedule=literal`). By default a push at the end of round r when r % N == 0 is pulled at the start of
  round r + 1 (staleness 1 to N), since section 3.2 has rows pushed "after the end of a epoch".
- the parameter server's aggregation is an all-reduce.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from harness.base.bounds import word
from harness.core.system import without_effect
from systems.parts.stale_system import REFUSES, StaleSystem


@dataclass
class Digest(StaleSystem):
    """Beside the knobs of `StaleSystem`:

    schedule    "after": push at the end of a round, pull at the start of the next; "literal": as Algorithm 1
                is printed
    aggregate   what is averaged over workers: "gradients", before one shared step, or "weights", after local
                steps
    weighting   a worker's weight in that average: "uniform", 1 / M each, or "train", its share of the
                training vertices
    gradient_error   report the distance to the exact gradient (Figure 10), untimed and uncounted
    """

    schedule: str = word("after", "literal")
    aggregate: str = word("gradients", "weights")
    weighting: str = word("uniform", "train")
    gradient_error: bool = False

    refuses: ClassVar = replace(REFUSES, combine="")

    def traits(self):
        common = super().traits()
        idle = ["weighting"] if self.loss == "global" else []
        why = "at system.loss=global gradients are summed as they are"
        late = ["schedule"] if self.interval == 1 else []
        both = "at system.interval=1 every round pulls what the round before pushed"
        ineffective = without_effect(self, idle, why) + without_effect(self, late, both)
        return replace(common, ineffective=common.ineffective + ineffective)

    def supports(self, run):
        if run.combine != "exact" and self.aggregate == "weights":
            return (
                f"combine={run.combine} codes gradients, and system.aggregate=weights sums weights; give"
                " combine=exact or system.aggregate=gradients"
            )
        if self.loss == "global" and self.aggregate == "weights":
            return (
                "system.loss=global divides a worker's loss by the training vertices of all, so the mean of"
                " weights after such steps (system.aggregate=weights) moves too little; give"
                " system.loss=partition or system.aggregate=gradients"
            )
        return super().supports(run)

    def setup(self, context):
        super().setup(context)
        local, total = len(context.train_rows), int(self.shard.split_counts[0])
        self.share = local / total if self.weighting == "train" else 1 / self.comm.size
        if self.loss == "global":
            self.share = 1.0

    def before_training(self):
        """The store before round 1: H^(l) of an exact forward pass with the first weights."""
        if self.start == "exact":
            self.representations.begin(self.context.exact_inputs(), self.shard.num_inner)
            for layer in () if self.pulls(1) else range(1, self.num_layers):
                self.representations.pull(layer, [0] * self.comm.size)
                self.representations.wait(layer)

    # -- Algorithm 1, in the order of a round --

    def pulls(self, r: int) -> bool:
        """Whether workers pull at the start of round r."""
        return r % self.interval == 0 if self.schedule == "literal" else (r - 1) % self.interval == 0

    def pushes(self):
        before = self.round - 1 if self.schedule == "literal" else self.round
        return self.round if before % self.interval == 0 else None

    def last_push(self, r: int) -> int:
        """The last round before r that pushed; 0 for the start."""
        if self.schedule == "literal":
            return 1 + (r - 2) // self.interval * self.interval if r > 1 else 0
        return (r - 1) // self.interval * self.interval

    def before_epoch(self, epoch):
        self.round = epoch + 1
        stamp = self.last_push(self.round)
        self.pulling = self.pulls(self.round) and (stamp > 0 or self.start == "exact")
        self.wanted = [stamp] * self.comm.size
        if self.gradient_error:
            self.weights_before = [p.detach().clone() for p in self.context.model.parameters()]
        self.prefetch(1)

    def combine(self, parameters):
        self.representations.report(self.round)
        # nobody enters the next round before everything of this one is in the store
        self.representations.pushed()
        gradients = [p.grad for p in parameters]
        if self.gradient_error:
            self.own_gradient = [g.clone() for g in gradients]
        if self.aggregate == "gradients":
            self.combiner.sum(gradients, self.share)

    def after_epoch(self, epoch):
        if self.aggregate == "weights":  # AGG, line 13
            self.comm.sum_weights([p.data for p in self.context.model.parameters()], self.share)

    # -- the rest --

    def observe(self, epoch):
        """Figure 10: ||g - g*|| / ||g*|| of the round's gradient g and the exact one g*, at the round's
        weights and masks.
        """
        if not self.gradient_error:
            return
        parameters = list(self.context.model.parameters())
        after = [p.detach().clone() for p in parameters]
        set_weights(parameters, self.weights_before)
        rows = self.context.train_rows
        divisor = self.loss_divisor(len(rows), int(self.shard.split_counts[0]))
        # A worker's loss also has gradients on other workers, whose own shares must not multiply them: the
        # share is therefore in the divisor of the loss, and the sum over workers has no weights.
        self.context.exact_gradient(rows, divisor / self.share if self.share else float("inf"), masks=0)
        exact = torch.cat([p.grad.reshape(-1) for p in parameters])
        own = torch.cat([g.reshape(-1) for g in self.own_gradient]) * self.share
        both = torch.stack([own, exact])
        self.comm.all_reduce(both, purpose="observe")
        set_weights(parameters, after)
        size = torch.linalg.vector_norm(both[1])
        self.recorder.metric("gradient_error", float(torch.linalg.vector_norm(both[0] - both[1]) / size))


def set_weights(parameters: list[torch.nn.Parameter], values: list[torch.Tensor]) -> None:
    """Copy values into the parameters, in place."""
    with torch.no_grad():
        for parameter, value in zip(parameters, values):
            parameter.copy_(value)
