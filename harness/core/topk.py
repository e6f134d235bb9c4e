"""Sums of the largest values alone: Stich, Cordonnier, Jaggi, "Sparsified SGD with Memory", NeurIPS 2018.

With g_i the gradient of worker i, a vector of n values for all parameters, and m_i its memory, 0 at first:

    u_i = m_i + g_i        s_i = the k values of u_i that are largest by size, 0 elsewhere
    g = sum_i s_i          m_i <- u_i - s_i

Each worker sends its k values and their places to all others, and adds up all workers' in the order of ranks.
Bytes per epoch over P workers, values of b bytes: P (P - 1) k (b + 4), against 2 (P - 1) b n of the exact
sum; where that is not fewer, sums are exact.

Departures: m_i holds gradients. In the paper it holds steps, gradients times the learning rate: with plain
SGD at a constant rate both are the same.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.base.bounds import number
from harness.base.hollow import hollow
from harness.comm.comm import Comm
from harness.comm.work import pack, stream
from harness.core.combine import LAYER, Combine, Combiner


@dataclass
class TopK(Combine):
    """Each worker sends the largest values of its gradient alone, and keeps the others for later epochs.

    share   of all values that a worker sends, rounded up to whole values
    """

    share: float = number(0.01, 0, 1, above=True)

    def make(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int) -> Combiner:
        values, size = sum(p.numel() for p in parameters), parameters[0].element_size()
        count = math.ceil(round(self.share * values, 9))  # 0.1 * 30 is more than 3 as a float
        fewer = comm.size * count * (size + 4) < 2 * values * size
        return (
            Largest(parameters, comm, seed, count)
            if comm.size > 1 and fewer
            else Combiner(parameters, comm, seed)
        )


class Largest(Combiner):
    """Sums of each worker's `count` largest values. State: memory [n], this worker's m_i."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int, count: int):
        super().__init__(parameters, comm, seed)
        self.count = count
        self.memory = torch.cat([torch.zeros_like(p).reshape(-1) for p in self.parameters]).detach()

    @torch.no_grad()
    def sum(self, gradients: Sequence[torch.Tensor], share: float = 1.0) -> None:
        comm, others, k = self.comm, self.comm.size - 1, self.count
        flat = share * torch.cat([g.reshape(-1) for g in gradients]) + self.memory
        # A dry run has no values to compare: any k places take as many bytes.
        largest = torch.arange(k) if hollow(flat) else torch.topk(flat.abs(), k, sorted=False).indices
        places = largest.sort().values.to(flat.device)
        values = flat[places]
        n, size = flat.numel(), flat.element_size()
        # Counted: u_i is made of gradient, share and memory, then searched for its largest, which are copied.
        comm.recorder.work(stream(1, n, size, 4, 3), stream(1, n, size, 1, 0), pack(k, 1, size, of=n))
        # Every other worker is sent the same two messages: the places, and the values at them.
        counts, none = [k if worker != comm.rank else 0 for worker in range(comm.size)], [0] * comm.size
        flights = [
            comm.start_exchange(
                each.repeat(others)[:, None], counts, counts, LAYER, "backward", "weights", slot, none
            )
            for slot, each in enumerate((places.int(), values))
        ]
        self.memory = flat.index_fill(0, places, 0.0)
        (where_flight, where), (what_flight, what) = flights
        where_flight.wait()
        what_flight.wait()
        total, first = torch.zeros_like(flat), 0
        for worker in range(comm.size):
            if worker == comm.rank:
                total[places] += values
                continue
            total[where[first : first + k, 0].long()] += what[first : first + k, 0]
            first += k
        comm.recorder.work(stream(1, n, size, 2, 3), pack(k * comm.size, 1, size, added=True, of=n))
        for gradient, part in zip(gradients, total.split([g.numel() for g in gradients])):
            gradient.copy_(part.view_as(gradient))

    def state_dict(self) -> dict[str, Any]:
        return {"memory": self.memory}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.memory = state["memory"]
