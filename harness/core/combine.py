"""How the workers' gradients become one step of the weights: exactly, or in fewer bytes. A further way is a
file beside this one and a yaml in `conf/combine/`.

    exact        the sum over workers, by an all-reduce; every worker takes the step
    quantised    rows of each matrix are split among owners. Up: every worker sends its gradient's rows to
                 their owner, rounded stochastically to B bits, and the owner adds them up. The owner alone
                 takes the step, on a copy w that is its own. Down: the owner sends q = Q(w - w^), rounded to
                 the nearest, and w^ += q on every worker, the owner too. All compute and evaluate with w^,
                 the same bits everywhere. What q lacks stays in w - w^ and goes down later; what is rounded
                 off a gradient is not sent later, and is 0 on average
    powersgd     Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for
                 Distributed Optimization", NeurIPS 2019, algorithms 1 and 2: each matrix of the summed
                 gradient is replaced by one of rank r; what it lacks is added to the next epoch's gradient

A matrix is a parameter of two dimensions; others, as biases, are summed exactly.

Bytes per epoch over P workers, matrices [r, c] and all else n values of s bytes:

    exact        2 (P - 1) s values
    quantised    sum of 2 (P - 1) r (ceil(c B / 8) + 2), and 2 (P - 1) s n
    powersgd     sum of 2 (P - 1) s rank (r + c), and 2 (P - 1) s n; a matrix of fewer values is exact
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.base.bounds import number, one_of
from harness.comm.comm import Comm
from harness.comm.flight import InFlight
from harness.comm.work import code, dense, stream
from harness.core.draws import draws
from harness.core.quantise import add_scaled, scaled_bytes, sum_scaled, write_scaled

LAYER = -1  # under which what belongs to no layer is counted


class Combiner:
    """Exact sums, and what the other ways have in common with them.

    parameters   of the model, the same on every worker
    trained      the parameters that this worker's optimiser updates
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int):
        self.parameters, self.comm, self.seed = list(parameters), comm, seed
        self.trained = self.parameters
        self.epoch = 0

    def begin(self, epoch: int) -> None:
        """Called at the start of every epoch."""
        self.epoch = epoch

    @torch.no_grad()
    def sum(self, gradients: Sequence[torch.Tensor], share: float = 1.0) -> None:
        """Give each of `trained` the sum over workers of share * gradient; gradients are in the order of
        `parameters`.
        """
        self.comm.sum_weights(gradients, share)

    def spread(self) -> None:
        """Called after the optimiser's step: give every worker the parameters that others updated."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""


@dataclass
class Combine:
    """Base of every way: it makes a worker's `Combiner`."""

    def make(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int) -> Combiner:
        """This worker's combiner of the gradients of `parameters`; seed: the run's."""
        return Combiner(parameters, comm, seed)


@dataclass
class Exact(Combine):
    """Sums as they are."""


@dataclass
class Quantised(Combine):
    """Gradients go up to owners of rows and the rounded change of weights comes down, in few bits.

    bits   per value of a matrix, 4 or 8, up and down
    """

    bits: int = one_of(4, 4, 8)

    def make(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int) -> Combiner:
        # A worker alone sends nothing, and without a matrix nothing is rounded.
        coded = comm.size > 1 and any(p.dim() == 2 for p in parameters)
        return Owners(parameters, comm, seed, self.bits) if coded else Combiner(parameters, comm, seed)


@dataclass
class PowerSgd(Combine):
    """PowerSGD: a matrix of the summed gradient is replaced by one of low rank.

    rank   of what stands for a matrix of the summed gradient
    """

    rank: int = number(8, 1, 2**20)

    def make(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int) -> Combiner:
        return (
            LowRank(parameters, comm, seed, self.rank) if comm.size > 1 else Combiner(parameters, comm, seed)
        )


def smaller_as(shape: Sequence[int], rank: int) -> bool:
    """Whether a parameter has fewer values as a product of this rank."""
    return len(shape) == 2 and min(rank, *shape) * sum(shape) < math.prod(shape)


def owned_rows(rows: int, owner: int, workers: int) -> range:
    """Which of r = `rows` rows worker p = `owner` owns: from r p / P up to r (p + 1) / P."""
    return range(rows * owner // workers, rows * (owner + 1) // workers)


def _places(found: Sequence[tuple[range, int]]) -> np.ndarray:
    """Rows and the byte at which they begin, as `write_scaled` takes them."""
    return np.array([[rows.start, rows.stop, at] for rows, at in found], np.int64)


class _Works:
    """The work that `Owners` counts in every step, matrix by matrix."""

    def __init__(
        self, matrices: Sequence[torch.Tensor], masters: Sequence[torch.Tensor], size: int, bits: int
    ):
        self.shared = [stream(1, p.numel(), p.itemsize, 1, 1) for p in matrices]
        self.up, self.summed, self.down, self.stepped, sent = [], [], [], [], 0
        for p, own in zip(matrices, masters):
            (rows, columns), mine, value = p.shape, len(own), p.itemsize
            plain, coded, theirs = columns * value, scaled_bytes(columns, bits), (size - 1) * mine
            # As many random numbers are written, and then read, as there are values.
            self.up.append(stream(1, p.numel(), value, 0, 1))
            self.up.append(code(rows - mine, columns, 2 * (rows - mine) * plain, (rows - mine) * coded))
            self.summed.append(code(theirs, columns, theirs * coded, theirs * plain))
            self.summed.append(stream(1, own.numel(), value, 2 * size, size + 1))
            self.down.append(stream(1, own.numel(), value, 2, 1))
            self.down.append(code(mine, columns, mine * plain, mine * coded))
            self.stepped.append(code(rows, columns, rows * coded, rows * plain))
            self.stepped.append(stream(1, p.numel(), value, 2, 1))
            sent += mine * coded
        self.down.append(stream(1, sent, 1, size - 2, size - 2))  # copied for all other workers but the first


class Owners(Combiner):
    """Rows of matrices have owners; worker p owns those from r p / P up to r (p + 1) / P of r.

    State: masters, this worker's rows [.., c] of w, a parameter for each matrix. The model holds w^.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int, bits: int):
        super().__init__(parameters, comm, seed)
        self.bits, rank, size = bits, comm.rank, comm.size
        self.matrices = [at for at, p in enumerate(self.parameters) if p.ndim == 2]
        found = [self.parameters[at] for at in self.matrices]
        rows = [[owned_rows(len(p), owner, size) for p in found] for owner in range(size)]
        owned = [[len(of) * scaled_bytes(p.shape[1], bits) for of, p in zip(each, found)] for each in rows]
        # Bytes of every owner's rows: each matrix's follow those of the one before.
        self.bytes = [sum(each) for each in owned]
        self.sent = [self.bytes[owner] if owner != rank else 0 for owner in range(size)]
        self.received = [self.bytes[rank] if other != rank else 0 for other in range(size)]
        self.owned = [slice(of.start, of.stop) for of in rows[rank]]
        begins = [np.cumsum([0, *each])[:-1] for each in owned]
        first = np.cumsum([0, *self.sent])
        # By matrix. places: other owners' rows, in what this worker sends up and in what comes down to it.
        # starts: the own rows, in what comes up from each other worker. own_places and master_places: the own
        # rows, in what this worker sends down; counted as rows of the matrix, and of its master.
        self.places = [
            _places([(rows[p][at], first[p] + begins[p][at]) for p in comm.peers]) for at in range(len(found))
        ]
        self.starts = [np.arange(size - 1) * self.bytes[rank] + begin for begin in begins[rank]]
        self.own_places = [_places([(of, begin)]) for of, begin in zip(rows[rank], begins[rank])]
        self.master_places = [places - [places[0, 0], places[0, 0], 0] for places in self.own_places]
        self.masters = [torch.nn.Parameter(p.detach()[of].clone()) for p, of in zip(found, self.owned)]
        others = [p for at, p in enumerate(self.parameters) if at not in self.matrices]
        self.trained = [*self.masters, *others]
        self.works = _Works(found, self.masters, size, bits)

    @torch.no_grad()
    def sum(self, gradients: Sequence[torch.Tensor], share: float = 1.0) -> None:
        comm, rank, device = self.comm, self.comm.rank, self.comm.device
        # Up: each owner gets its rows, coded, of all matrices.
        given = [gradients[at] * share if share != 1.0 else gradients[at] for at in self.matrices]
        sizes = [g.numel() for g in given]
        noise = draws(
            self.seed, self.epoch, LAYER, "backward", rank, (sum(sizes),), given[0].dtype, device
        ).split(sizes)
        message = self._outgoing("backward", sum(self.sent))
        for g, u, places in zip(given, noise, self.places):
            write_scaled(g, places, self.bits, u.view(g.shape), message)
        comm.recorder.work(*(self.works.shared if share != 1.0 else ()), *self.works.up)
        flight, messages = self._start(message, self.sent, self.received, "backward")
        # Meanwhile what has no owner is summed by all.
        others = [g for at, g in enumerate(gradients) if at not in self.matrices]
        if others:
            comm.sum_weights(others, share)
        flight.wait()
        # The owner's own rows are exact; the others' are added in the order of ranks.
        wire = messages[:, 0]
        for g, master, rows, starts in zip(given, self.masters, self.owned, self.starts):
            master.grad = sum_scaled(wire, starts, rank, g[rows], self.bits)
        comm.recorder.work(*self.works.summed)

    @torch.no_grad()
    def spread(self) -> None:
        comm, rank, others = self.comm, self.comm.rank, self.comm.size - 1
        comm.recorder.segment("compute", "combine")
        held = [self.parameters[at].data for at in self.matrices]
        # Down: one message for all workers, which the owner reads as they do.
        message = self._outgoing("forward", others * self.bytes[rank])
        own = message[: self.bytes[rank]]
        for master, w, rows, places in zip(self.masters, held, self.owned, self.master_places):
            write_scaled(master - w[rows], places, self.bits, 0.5, own)
        message.view(others, -1)[1:] = own
        comm.recorder.work(*self.works.down)
        flight, messages = self._start(message, self.received, self.sent, "forward")
        for w, places in zip(held, self.own_places):
            add_scaled(own, places, self.bits, w)
        flight.wait()
        wire = messages[:, 0]
        for w, places in zip(held, self.places):
            add_scaled(wire, places, self.bits, w)
        comm.recorder.work(*self.works.stepped)

    def _start(
        self, message: torch.Tensor, send: list[int], receive: list[int], direction: str
    ) -> tuple[InFlight, torch.Tensor]:
        """Start an exchange of bytes, which is counted without rows: they are no layer's."""
        none = [0] * self.comm.size
        return self.comm.start_exchange(
            message[:, None], send, receive, LAYER, direction, "weights", counted=none
        )

    def _outgoing(self, direction: str, nbytes: int) -> torch.Tensor:
        """[bytes] to write a message in."""
        key = (direction, "weights", LAYER, "coded")
        return self.comm.outgoing(key, (nbytes,), torch.uint8, halved=False)

    def state_dict(self) -> dict[str, Any]:
        return {"masters": [master.detach() for master in self.masters]}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for master, saved in zip(self.masters, state["masters"]):
            master.copy_(saved)


class LowRank(Combiner):
    """PowerSGD. State, by matrix [r, c]: q [c, rank], the same on every worker, and the error [r, c] that is
    this worker's.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], comm: Comm, seed: int, rank: int):
        super().__init__(parameters, comm, seed)
        self.matrices = [at for at, p in enumerate(self.parameters) if smaller_as(p.shape, rank)]
        generator = torch.Generator().manual_seed(seed)
        found = [self.parameters[at] for at in self.matrices]
        self.q = [
            torch.randn(p.shape[1], min(rank, *p.shape), generator=generator).to(p.device, p.dtype)
            for p in found
        ]
        self.errors = [torch.zeros_like(p) for p in found]

    @torch.no_grad()
    def sum(self, gradients: Sequence[torch.Tensor], share: float = 1.0) -> None:
        if not self.matrices:
            return super().sum(gradients, share)
        # Every worker's M is its gradient plus the error of its last sum; other gradients are only scaled.
        given = [share * gradients[at] + error for at, error in zip(self.matrices, self.errors)]
        others = [g for at, g in enumerate(gradients) if at not in self.matrices]
        for each in others:
            each *= share
            self.comm.recorder.work(stream(1, each.numel(), each.element_size(), 1, 1))
        # The first factor: P = sum of M q over workers. All make the same orthonormal basis of its columns.
        columns = [m @ q for m, q in zip(given, self.q)]
        for m, p in zip(given, columns):
            self._counted(m, p.shape[1])
        self.comm.sum_weights([*columns, *others])
        bases = [torch.linalg.qr(p).Q for p in columns]
        # The second factor: q = sum of M^T basis. A worker's error is what its own product lacks of its M, so
        # it is taken before the sum.
        self.q = [m.t() @ basis for m, basis in zip(given, bases)]
        self.errors = [m - basis @ q.t() for m, basis, q in zip(given, bases, self.q)]
        self.comm.sum_weights(self.q)
        for at, basis, q in zip(self.matrices, bases, self.q):
            gradients[at].copy_(basis @ q.t())

    def _counted(self, m: torch.Tensor, rank: int) -> None:
        """Count what is done with one matrix: its sum, both factors, a basis of the first, the product twice,
        the new error and the copy."""
        (rows, columns), size = m.shape, m.element_size()
        product = dense(rows, rank, columns, size)
        self.comm.recorder.work(
            stream(rows, columns, size, 3, 2),  # times its share, and the error added
            dense(rows, columns, rank, size),
            *[dense(rows, rank, rank, size)] * 2,
            dense(columns, rows, rank, size),
            *[product] * 2,
            stream(rows, columns, size, 3, 2),
        )

    def state_dict(self) -> dict[str, Any]:
        return {"q": self.q, "errors": self.errors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.q, self.errors = state["q"], state["errors"]
