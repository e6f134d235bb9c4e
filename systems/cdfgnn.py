"""CDFGNN: Zhang, Jiang, You, "CDFGNN: a Systematic Design of Cache-based Distributed Full-Batch Graph Neural
Network Training with Communication Reduction", 2024.

Implements Algorithm 1 (the core's vertex-cut propagation around `synchronize`), Algorithm 2 (the adaptive
vertex cache, here for Z and for delta), the threshold rule (6) with (7), and the quantisation of (22) and
(23). Its partitioner, eq. (24), is partition=ebv.

Every replica of a vertex computes its part of the vertex's row of Z, and backward of delta. Gather: a mirror
whose part has changed by more than eps, relative to its largest entry, since it was last used sends the
difference to its master, which adds it to its sum of all parts; a master adds the difference of its own part
by the same rule. Scatter: a master whose sum has changed sends it to its mirrors. Replicas compute with the
sum of the last scatter.

Notation: z_i worker i's part of a vertex's row of Z = A H W (or of delta = dL/dZ); zt_i the part as last used
(the mirrors' and the master's z~_i), zt the master's sum of them (z~_.); k masters that have mirrors and m
mirrors of a worker; eps the threshold.

Printed: xi = 0.01 (a later sentence has 0.02), mu1 = 0.001 and mu2 = 0.02 (the text calls mu1 "much larger"),
nu1 = 0.3, nu2 = 0.001, lambda1 = 1.05, lambda2 = 0.9, and 0.8 in (7).

Decisions
- eq. (6) moves eps against its own prose: `rule=prose` shrinks it where the training accuracy falls below its
  mean - mu1 and relaxes it above mean + mu2, which fits Fig. 7; `literal` has the two exchanged, as printed.
  eps is clamped to [nu2, nu1] after the step, as the text says; (6) only tests it before.
- not printed: eps starts at 0.01, the mean at the first accuracy; (6) compares before (7) updates; the
  accuracy is that of the epoch's own logits, the workers' counts summed (16 bytes each); B = 8.
- a row of equal entries is restored exactly. A message is its row's id (4 bytes), B F bits and the two
  constants; with a cache each worker also tells each other how many rows come (8 bytes). Section 5's size of
  a message, B L + 2 T, has neither.
- Algorithm 2's condition in its product form, strict: ||z - zt|| > eps ||zt||. Caches start at 0, so the
  first epoch sends every row that is not 0. A row with a value that is not a number has changed.
- metrics, by layer and direction, in rows of gather and scatter together: `sent`; `saved`, not sent because
  the change is within eps; `zero`, not sent because the row is 0 and was 0, which is no hit of the cache; and
  `possible`, the sum of the three. A sum whose parts have gone back to 0 may keep a rounding error, and then
  counts as `saved`.
- drift: zt_i becomes zt_i + the dequantised difference, so that zt = sum_i zt_i at every step. A master's own
  part is not quantised.
- scatter: Algorithm 2 (line 18) sends the sum, and section 5 quantises differences. `value` sends the
  quantised sum, `diff` the quantised difference from what the mirrors have, `fp32` the sum as it is. The
  master computes with what its mirrors get, and keeps an exact accumulator.
- weight gradients are not quantised: section 5 leaves the parameters' traffic alone, though section 2.2 has
  their gradients among the messages that are quantised. Loss on masters; self-loop at the master; global
  degrees; (3) and (4) by autograd.
- `cache=false`: every part, whole, every epoch, without ids; with `quantise=false` too this is exact, and
  with `features=refetch` besides it is the paper's Baseline.
- which replica is a vertex's master is the partition's (`partition.masters=host`, on the host with most of
  them): the paper does not say, and its Table 3 fits it (docs/partition.md).
- bias, and GraphSAGE's root, are applied by every replica after the synchronisation, with its own part of
  their gradient.
Departures: by default (`features=once`) layer 0 is synchronised once, as A X, which is exact since features
are static, and then needs neither direction. Algorithm 1 synchronises Z and delta of every layer in every
epoch, which is `refetch`. Gradients are summed by an all-reduce, where Algorithm 1 (line 13) has a parameter
server. With quantisation zt_i takes the dequantised difference, where Algorithm 2 (line 6) stores z_i. (22)
gives the largest entry the code 2^B, which needs B + 1 bits; here codes have 2^B - 1 steps, in (22) and (23).
A vertex without mirrors is always fresh (Algorithm 2 would use its cached row too): only remote values may be
stale. Attention, which section 2.1 names beside GCN, is refused.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import number, one_of, word
from harness.base.errors import InputError, within
from harness.base.hollow import hollow
from harness.comm.rows import scatter_add_rows
from harness.comm.work import code, stream
from harness.core import quantise as linear
from harness.core.counted import Accuracy
from harness.core.mixins import SeesOutput
from harness.core.scores import predicted
from harness.core.system import ReplicaSystem, Traits, without_effect
from systems.parts.changes import changed, difference


@dataclass
class Cdfgnn(SeesOutput, ReplicaSystem):
    """The knobs.

    cache     keep rows and send only those that changed by more than eps; false: send all
    quantise  true: messages have `bits` bits per value; false: float32
    bits      bits of a value that is quantised: 2, 4, 8 or 16
    scatter   what a master sends back: the quantised sum ("value"), the quantised difference ("diff"), the
              sum ("fp32")
    rule      how eps follows the training accuracy: "prose": below its mean eps shrinks, above it eps grows,
              as the paper's text has it; "literal": eq. (6) as printed, which has it the other way round
    epsilon   eps at the start: a row is sent where an entry has changed by more than eps times the largest
              entry of the row as last used
    xi        of eq. (6): eps changes by at most this per epoch
    mu1       of eq. (6): eps changes where the training accuracy is more than this below its mean
    mu2       of eq. (6): eps changes where the training accuracy is more than this above its mean
    nu1       of eq. (6): the largest eps
    nu2       of eq. (6): the smallest eps
    lambda1   of eq. (6): eps grows by at most this factor per epoch, at least 1
    lambda2   of eq. (6): eps shrinks by at most this factor per epoch, at most 1
    momentum  of eq. (7): the weight of the past in the mean of the training accuracy
    coding_error  report the largest rounding error of a message (section 5), which takes a pass over it
    features  "once": layer 0's A X is synchronised in the first epoch and kept; "refetch": layer 0 is
              synchronised in every epoch like the other layers
    """

    cache: bool = True
    quantise: bool = True
    bits: int = one_of(8, 2, 4, 8, 16)
    scatter: str = word("value", "diff", "fp32")
    rule: str = word("prose", "literal")
    epsilon: float = number(0.01)
    xi: float = number(0.01)
    mu1: float = number(0.001)
    mu2: float = number(0.02)
    nu1: float = number(0.3)
    nu2: float = number(0.001)
    lambda1: float = number(1.05, 1)
    lambda2: float = number(0.9, 0, 1)
    momentum: float = number(0.8, 0, 1)
    coding_error: bool = False
    features: str = word("once", "refetch")

    exact: ClassVar = {"cache": False, "quantise": False}

    def __post_init__(self):
        if self.nu1 < self.nu2:
            raise InputError(
                f"nu1={self.nu1}, the upper bound of epsilon, is less than nu2={self.nu2}, the lower;"
                " exchange the two"
            )
        within("epsilon", self.epsilon, self.nu2, self.nu1)

    def traits(self):
        said = []
        if not self.cache:
            rule = ["rule", "xi", "mu1", "mu2", "nu1", "nu2", "lambda1", "lambda2", "momentum"]
            said += without_effect(self, ["epsilon", *rule], "at system.cache=false every row is sent")
        if not self.quantise:
            idle = ["bits", "coding_error", *(["scatter"] if self.scatter == "fp32" else [])]
            said += without_effect(self, idle, "at system.quantise=false messages are float32")
        if not self.cache and self.scatter == "diff":
            said += without_effect(self, ["scatter"], "at system.cache=false the difference is the sum")
        return Traits(ineffective=said)

    def setup(self, context):
        super().setup(context)
        plan, masters = self.plan, self.shard.num_masters
        # Masters that have mirrors, and for every copy elsewhere the place of its master among them.
        self.shared, self.place = torch.unique(plan.send_rows, return_inverse=True)
        self.masters = masters
        self.gather = Selection(self.comm, plan.receive_counts, plan.send_counts, "gather", self.device)
        self.scattering = Selection(self.comm, plan.send_counts, plan.receive_counts, "scatter", self.device)
        self.labels = torch.as_tensor(self.shard.labels).to(self.device)[context.train_rows]
        self.train_rows = context.train_rows
        # State: the caches by direction and layer, eps and the mean accuracy.
        self.eps, self.mean_accuracy = self.epsilon, None
        self.largest_error = 0.0  # of the epoch's messages
        first = 1 if self.features == "once" else 0
        self.rows = {
            f"{direction} {l}": self.empty_rows(self.widths[l + 1])
            for direction in ("forward", "backward")
            for l in range(first, self.num_layers)
        }

    def empty_rows(self, width: int) -> dict[str, torch.Tensor]:
        """The caches of one layer and direction: zt_i of the shared masters and of the mirrors, the masters'
        sums zt, and the rows that replicas compute with."""
        k, m = len(self.shared), self.plan.num_halo
        sizes = {"master": k, "mirror": m, "sum": k, "master_used": k, "mirror_used": m}
        return {name: torch.zeros(size, width, device=self.device) for name, size in sizes.items()}

    # -- Algorithm 2, for Z forwards and for delta backwards --

    def synchronize(self, layer, z):
        return _Synchronise.apply(z, self, layer)

    def update(self, layer: int, direction: str, z: torch.Tensor) -> torch.Tensor:
        """The rows [r, F] that stand for the sums over replicas of the parts z [r, F]."""
        recorder, rows = self.recorder, self.rows[f"{direction} {layer}"]
        with recorder.inside("rest", "cache", layer):
            if not self.cache:
                for each in rows.values():
                    each.zero_()
            parts, own = z[self.masters :], z.index_select(0, self.shared)
            # Lines 2-6: mirrors whose part has changed send the difference to their master.
            fresh, zero = self.changed(parts, rows["mirror"])
            sent = fresh.nonzero().squeeze(1)
            zeros, saved = zero.sum(), (~fresh & ~zero).sum()
            wire = self.pack(difference(parts, rows["mirror"], sent), self.quantise)
            scatter_add_rows(rows["mirror"], sent, self.unpack(wire, z, self.quantise))
            self.counted(z, len(parts), len(sent))
        # Line 7, gather: each master gets the differences of its mirrors.
        arrived, wire = self.gather.exchange(sent, wire, layer, direction, ids=self.cache)
        with recorder.inside("rest", "cache", layer):
            # Lines 8-11: masters add the differences.
            active = torch.zeros(len(self.shared), dtype=torch.bool, device=self.device)
            at = self.place[arrived]
            scatter_add_rows(rows["sum"], at, self.unpack(wire, z, self.quantise))
            active[at] = True
            # Lines 12-16: masters add the change of their own part, which is not quantised.
            fresh, zero = self.changed(own, rows["master"])
            mine = fresh.nonzero().squeeze(1)
            change = difference(own, rows["master"], mine)
            scatter_add_rows(rows["sum"], mine, change)
            scatter_add_rows(rows["master"], mine, change)
            active[mine] = True
            # Lines 17-18: a sum that has changed is coded once, for its master and all its mirrors.
            chosen = active.nonzero().squeeze(1)
            if self.scatter == "diff":
                message = difference(rows["sum"], rows["master_used"], chosen)
            else:
                message = rows["sum"].index_select(0, chosen)
            coded = self.quantise and self.scatter != "fp32"
            wire = self.pack(message, coded)
            self.use(rows["master_used"], chosen, self.unpack(wire, z, coded))
            number = torch.zeros(len(self.shared), dtype=torch.int64, device=self.device)
            number[chosen] = torch.arange(len(chosen), device=self.device)
            copies = active[self.place].nonzero().squeeze(1)
            wire = wire.index_select(0, number[self.place[copies]])
            # Copies that are not sent: `zero` where a sum and its parts are 0, `saved` elsewhere.
            zero &= ~active & (rows["sum"].abs().amax(1) == 0)
            zeros += zero[self.place].sum()
            saved += (~active & ~zero)[self.place].sum()
            self.counted(z, len(own), len(at) + len(mine) + len(chosen))
        # Scatter: the mirrors get the sums. A replica that gets none computes with the last one it got.
        arrived, wire = self.scattering.exchange(copies, wire, layer, direction, ids=self.cache)
        with recorder.inside("rest", "cache", layer):
            self.use(rows["mirror_used"], arrived, self.unpack(wire, z, coded))
            combined = z.clone(memory_format=torch.contiguous_format)
            combined.index_copy_(0, self.shared, rows["master_used"])
            combined[self.masters :] = rows["mirror_used"]
            self.counted(z, 0, len(arrived))
            recorder.work(stream(len(z), z.shape[1], z.element_size(), 2, 2))
        possible = len(parts) + len(self.place)
        counts: dict[str, float | torch.Tensor] = {
            "sent": len(sent) + len(copies),
            "saved": saved,
            "zero": zeros,
            "possible": possible,
        }
        for name, count in counts.items():
            recorder.metric(f"{name}_{direction}", count, layer)
        return combined

    def counted(self, z: torch.Tensor, compared: int, moved: int) -> None:
        """Count rows as wide as z: those compared with their cached ones, and those whose differences are
        taken, coded and added up."""
        once = stream(1, z.shape[1], z.element_size(), 1, 1)
        for rows, reads, writes in ((compared if self.cache else 0, 2, 0), (moved, 4, 3)):
            if rows:
                read, written = rows * reads * once.read, rows * writes * once.written
                self.recorder.work(once._replace(rows=rows, read=read, written=written))

    def changed(self, z: torch.Tensor, cached: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which rows of z [k, F] are FRESH, and which are 0 and cached as 0  [k] bool each.

        FRESH where ||z - zt||_inf > eps ||zt||_inf, and where a value is not a number; without a cache
        everywhere. A row that is 0 and cached as 0 is not FRESH: whatever eps is, there is nothing to send.
        """
        if not self.cache:
            fresh = torch.ones(len(z), dtype=torch.bool, device=self.device)
            return fresh, ~fresh
        return changed(z, cached, self.eps)

    def use(self, rows: torch.Tensor, at: torch.Tensor, message: torch.Tensor) -> None:
        """Write message [k, F] into the rows at `at` that replicas compute with; at scatter=diff, add it."""
        if self.scatter == "diff":
            scatter_add_rows(rows, at, message)
        else:
            rows.index_copy_(0, at, message)

    # -- messages: eqs. (22) and (23) --

    def pack(self, rows: torch.Tensor, coded: bool) -> torch.Tensor:
        """The bytes [rows, ...] that travel for rows [rows, F]."""
        if not coded:
            return rows.contiguous().view(torch.uint8)
        wire = linear.quantise(rows, self.bits)
        if self.coding_error:
            self.largest_error = max(self.largest_error, linear.rounding_error(rows, wire, self.bits))
        self.recorder.work(code(len(rows), rows.shape[1], rows.nbytes, wire.nbytes))
        return wire

    def unpack(self, wire: torch.Tensor, like: torch.Tensor, coded: bool) -> torch.Tensor:
        """The rows that `pack` made `wire` of, in the width and precision of `like`."""
        if coded:
            rows = linear.dequantise(wire, like.shape[1], self.bits, like.dtype)
            self.recorder.work(code(len(rows), rows.shape[1], wire.nbytes, rows.nbytes))
            return rows
        return wire.clone(memory_format=torch.contiguous_format).view(like.dtype)

    # -- the threshold: eqs. (6) and (7) --

    def output(self, layer, z):
        if layer == self.num_layers - 1:
            rows, labels = z.detach()[self.train_rows], self.labels
            self.counts = Accuracy().counts(predicted(rows, labels), rows, labels)[:2]
        return z

    def after_epoch(self, epoch):
        self.recorder.metric("epsilon", self.eps)
        if self.coding_error:
            self.recorder.metric("coding_error", self.largest_error)
            self.largest_error = 0.0
        if self.cache:
            counts = self.counts.to(torch.float64)
            self.comm.all_reduce(counts, purpose="accuracy")
            if hollow(counts):  # of a dry run, in which no threshold decides
                return
            right, possible = counts.tolist()
            accuracy = right / max(possible, 1.0)
            self.recorder.metric("train_accuracy", accuracy)
            self.adapt(accuracy)

    def adapt(self, accuracy: float) -> None:
        """Set the eps of the next epoch (6) and the mean accuracy (7) by this epoch's accuracy."""
        if self.mean_accuracy is None:
            self.mean_accuracy = accuracy
        relaxed, shrunk = (
            min(self.lambda1 * self.eps, self.eps + self.xi),
            max(self.lambda2 * self.eps, self.eps - self.xi),
        )
        after_drop, after_rise = (shrunk, relaxed) if self.rule == "prose" else (relaxed, shrunk)
        if accuracy < self.mean_accuracy - self.mu1:
            self.eps = after_drop
        elif accuracy > self.mean_accuracy + self.mu2:
            self.eps = after_rise
        self.eps = min(max(self.eps, self.nu2), self.nu1)
        self.mean_accuracy = self.momentum * self.mean_accuracy + (1 - self.momentum) * accuracy

    def state_dict(self):
        return {"rows": self.rows if self.cache else {}, "eps": self.eps, "mean_accuracy": self.mean_accuracy}

    def load_state_dict(self, state):
        self.rows, self.eps, self.mean_accuracy = (
            state["rows"] or self.rows,
            state["eps"],
            state["mean_accuracy"],
        )


class _Synchronise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, system, layer):
        ctx.system, ctx.layer = system, layer
        return system.update(layer, "forward", z)

    @staticmethod
    def backward(ctx, delta):
        return ctx.system.update(ctx.layer, "backward", delta), None, None


class Selection:
    """An exchange of some of the rows that two workers have agreed on: each row travels with its number.

    out, into   how many rows go to, and come from, each worker if all are sent
    """

    def __init__(self, comm, out: list[int], into: list[int], purpose: str, device: torch.device):
        self.comm, self.out, self.into, self.purpose = comm, out, into, purpose
        # the number of every row that could be sent, among those for its receiver
        self.number = torch.cat([torch.arange(count, dtype=torch.int32) for count in out]).to(device)
        self.out_end = torch.tensor(out, device=device).cumsum(0)
        self.in_start = torch.tensor([0, *into], device=device).cumsum(0)[:-1]

    def exchange(self, rows: torch.Tensor, wire: torch.Tensor, layer: int, direction: str, ids: bool):
        """Send wire [k, bytes], the rows [k] ascending of all that could be sent. Returns the rows that
        arrive, among all that could, and their bytes. Without `ids` all are sent, and nothing but the rows
        travels."""
        comm = self.comm
        if not ids:
            received = comm.exchange_now(wire, self.out, self.into, layer, direction, self.purpose)
            return torch.arange(len(received), device=rows.device), received
        # Rows ascend, and so do their receivers. To count these by search is one read of the device, where a
        # bincount takes two.
        ends = torch.searchsorted(rows, self.out_end).tolist()
        send = [end - start for start, end in zip([0, *ends], ends)]
        receive = comm.exchange_counts(send, layer, direction, "counts")
        id = self.number[rows][:, None].view(torch.uint8)
        if hollow(wire):  # of a dry run, whose ids are real
            wire = torch.zeros(wire.shape, dtype=torch.uint8)
        sent = torch.cat([id, wire], 1)
        received = comm.exchange_now(sent, send, receive, layer, direction, self.purpose)
        id = received[:, :4].clone(memory_format=torch.contiguous_format).view(torch.int32)[:, 0].long()
        counts = torch.tensor(receive).to(rows.device, non_blocking=True)
        first = self.in_start.repeat_interleave(counts, output_size=len(received))
        return id + first, received[:, 4:]
