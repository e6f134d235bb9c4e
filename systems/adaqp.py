"""AdaQP: Wan, Zhao, Wu, "Adaptive Message Quantization and Parallelization for Distributed Full-graph GNN
Training", MLSys 2023; built here as a baseline of CaPGNN (section 5), from notes of it.

Vanilla's exchange, every row stochastically quantised to few bits: features and hidden rows forward, their
gradients backward. With B bits, u uniform in [0, 1) and low, high the least and the largest value of a row:

    q = floor((x - low) / S + u),   x' = low + q S,   S = (high - low) / (2^B - 1),   E x' = x

    Var x' of a row: F S^2 / 6 where entries are uniform between two codes, F S^2 / 4 at most

`assignment=adaptive` chooses B in {2, 4, 8} for every row anew every `period` epochs: the sum over rows of
w_k Var_k is made small at a mean over rows of at most `bits` bits per value, with w_k = sum_v alpha_vk^2 over
the rows v that use k (forward) or 1 (gradients).

Bytes: ceil(F B / 8) + 8 per row, layer and direction; under `assignment=adaptive` one more per row in every
epoch that assigns, and in the first of these 4 per halo row, its weight.

Notation: s rows sent by and m halo rows received by a worker; alpha the propagation matrix.

Decisions
- the quantiser is linear per row (harness/core/quantise.py); its two constants travel with the row and are
  counted.
- adaptive: the sender decides from the rows it is about to send and tells the receiver in one byte per row,
  counted. What w_k needs of the receiver it sends to the owner once, counted too. The paper's solver weighs
  variance against time; here time is fixed by the budget and the best rows are upgraded first, which is
  optimal but for the last upgrade that does not fit. The period, and weight 1 for gradients, are ours.
- layer 0: features once (fetched exactly, once) | refetch (quantised anew every epoch).
Departures: the paper's text was not at hand. `assignment=uniform` at 8 bits, the default, is the caption of
CaPGNN's Table 6, whose row says adaptive. The overlap of inner ("central") vertices with communication is
that of every exchange of halo rows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, word
from harness.base.errors import InputError, choice
from harness.base.hollow import either, hollow
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.coded import CodedSystem, coded, decoded, noise

LEVELS = (2, 4, 8)


@dataclass
class Adaqp(CodedSystem):
    """bits        bits per value: 2, 4 or 8; under assignment=adaptive the mean over rows, 3 to 7
    assignment  "uniform": every row has `bits` bits per value; "adaptive": each row has 2, 4 or 8, chosen for
                a small variance at a mean of `bits`
    period      epochs between assignments
    features    "once": layer 0's halo rows are fetched once, exactly; "refetch": quantised anew in every
                epoch
    """

    bits: int = number(8, 2, 8)
    assignment: str = word("uniform", "adaptive")
    period: int = number(50, 1, ROUNDS)
    features: str = word("once", "refetch")

    refuses: ClassVar = Refuses(wire="quantises what it sends", needed_rows="")

    def __post_init__(self):
        if self.assignment == "uniform":
            choice("bits", self.bits, LEVELS)
        elif not LEVELS[0] < self.bits < LEVELS[-1]:
            raise InputError(
                f"bits={self.bits} on average leaves assignment=adaptive no choice among 2, 4 and 8; give"
                " bits=3 to bits=7"
            )

    def supports(self, run):
        if not run.matrix and self.assignment == "adaptive":
            return (
                f"model={run.model} has no propagation matrix to weigh rows by; give"
                " system.assignment=uniform, or model=gcn or model=sage"
            )
        if run.rows == "needed" and self.assignment == "adaptive":
            return (
                "rows=needed cannot be: adaqp weighs rows by all edges that use them under"
                " assignment=adaptive; give rows=all"
            )
        return super().supports(run)

    def traits(self):
        idle = ["period"] if self.assignment == "uniform" else []
        why = "at system.assignment=uniform every row keeps its bits"
        return Traits(overlaps=True, ineffective=without_effect(self, idle, why))

    def setup(self, context):
        super().setup(context)
        # State, by direction and layer: the bits of each row sent, and of each row received.
        self.chosen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self.divided: dict[str, list[Level]] = {}  # the exchanges that follow from them
        self.weight: torch.Tensor | None = None  # of the rows this worker sends forward

    # -- bits of a row --

    def levels(self, layer: int, direction: str, rows: torch.Tensor) -> list[Level]:
        """The exchanges that carry `rows` [k, F]: one for each number of bits in use."""
        send, receive = self.plans[layer].counts(direction)
        if self.assignment == "uniform":
            return [Level(self.bits, slice(None), send, slice(None), receive)]
        key = f"{direction} {layer}"
        if key not in self.chosen or self.epoch % self.period == 0:
            mine = assign_bits(self.variance(layer, direction, rows), self.bits)
            theirs = self.comm.exchange_now(mine[:, None], send, receive, layer, direction, "bits")
            self.chosen[key] = (mine, theirs[:, 0].clone())
            self.divided.pop(key, None)
        mine, theirs = self.chosen[key]
        if key not in self.divided:
            self.divided[key] = divide(mine, send, theirs, receive)
        self.recorder.metric(f"mean_bits_{direction}", mine.float().mean() if len(mine) else 0.0, layer)
        return self.divided[key]

    def variance(self, layer: int, direction: str, rows: torch.Tensor) -> torch.Tensor:
        """beta [k]: a row's weighted variance at B bits is beta / (2^B - 1)^2."""
        beta = rows.shape[1] * (rows.amax(1) - rows.amin(1)) ** 2 / 6 if len(rows) else rows.new_empty(0)
        if direction == "backward":
            return beta
        if self.weight is None:
            # Only a row's receiver knows how it weighs the row: it tells the owner, once.
            used = self.column_weights()[:, None]
            told = self.comm.exchange_now(used, *self.plan.counts("backward"), layer, "backward", "bits")
            self.weight = told[:, 0].clone()
        return beta * self.weight

    def column_weights(self) -> torch.Tensor:
        """sum_v alpha_vk^2 for every halo row k  [m], in the model's precision."""
        edges = self.shard.halo_edges
        rows = torch.repeat_interleave(
            torch.arange(edges.num_rows), torch.from_numpy(edges.indptr).diff().long()
        )
        row, _, halo = self.adjacency.scales()
        used = torch.from_numpy(row)[rows]
        if edges.values is not None:
            used = used * torch.from_numpy(edges.values)
        used = used**2
        summed = torch.zeros(edges.num_columns, dtype=used.dtype).index_add_(
            0, torch.from_numpy(edges.indices).long(), used
        )
        return (summed if halo is None else summed * torch.from_numpy(halo) ** 2).to(self.device)

    # -- a quantised message --

    def start(self, layer: int, direction: str, rows: torch.Tensor) -> list:
        """Quantise `rows` [k, F] and send them; returns what `finish` takes."""
        u = noise(self, self.epoch, layer, direction, rows)
        under_way = []
        for slot, level in enumerate(self.levels(layer, direction, rows)):
            wire = coded(rows[level.out], level.bits, u[level.out], self.recorder)
            flight, received = self.comm.start_exchange(
                wire, level.send, level.receive, layer, direction, "halo", slot
            )
            under_way.append((level, flight, received, wire))
        return under_way

    def finish(self, under_way: list, count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """The rows [count, width] that arrived."""
        for _, flight, _, _ in under_way:
            flight.wait()
        with self.recorder.inside("rest", "unpack"):
            parts = [
                (level, decoded(received, width, level.bits, dtype, self.recorder))
                for level, _, received, _ in under_way
            ]
            if len(parts) == 1:
                return parts[0][1]
            rows = torch.empty(count, width, dtype=dtype, device=self.device)
            for level, part in parts:
                rows[level.into] = part
            return rows

    def state_dict(self):
        return {"chosen": self.chosen, "weight": self.weight}

    def load_state_dict(self, state):
        self.chosen, self.weight, self.divided = state["chosen"], state["weight"], {}


@dataclass
class Level:
    """The rows that travel at one number of bits: which are sent (`out`) and how many to each worker, and
    where those received go (`into`) and how many come from each."""

    bits: int
    out: torch.Tensor | slice
    send: list[int]
    into: torch.Tensor | slice
    receive: list[int]


def divide(mine: torch.Tensor, send: list[int], theirs: torch.Tensor, receive: list[int]) -> list[Level]:
    """One exchange for each number of bits, of rows sent with `mine` bits [k] and received with `theirs` [m],
    both grouped by worker.
    """
    # All counts are read together: a device would wait for each read.
    groups = [*mine.split(send), *theirs.split(receive)]
    counts = torch.stack([(group == bits).sum() for bits in LEVELS for group in groups]).tolist()
    levels, workers = [], len(send)
    for at, bits in enumerate(LEVELS):
        of_level = counts[at * len(groups) : (at + 1) * len(groups)]
        out, into = ((each == bits).nonzero().squeeze(1) for each in (mine, theirs))
        levels.append(Level(bits, out, of_level[:workers], into, of_level[workers:]))
    return levels


def assign_bits(beta: torch.Tensor, mean: int) -> torch.Tensor:
    """Bits [k] uint8 of each row, `mean` on average or less. Every row begins with 2; of the upgrades from 2
    to 4 and from 4 to 8, those that lower sum beta / (2^B - 1)^2 most per bit are made while they fit."""
    low, middle, high = LEVELS
    if hollow(beta):
        return torch.full((len(beta),), high if either() else low, dtype=torch.uint8)
    gain = lambda a, b: beta * ((2**a - 1.0) ** -2 - (2**b - 1.0) ** -2) / (b - a)  # noqa: E731
    gains = torch.cat([gain(low, middle), gain(middle, high)])
    cost = torch.cat([torch.full_like(beta, middle - low), torch.full_like(beta, high - middle)])
    order = torch.argsort(gains, descending=True, stable=True)
    made = torch.zeros_like(gains, dtype=torch.bool)
    made[order] = cost[order].cumsum(0) <= (mean - low) * len(beta)
    first, second = made.chunk(2)
    return (low + (middle - low) * first + (high - middle) * (first & second)).to(torch.uint8)
