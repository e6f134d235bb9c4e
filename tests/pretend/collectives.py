"""NCCL as gloo behind checks."""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tests.pretend.tally import COLLECTIVE, line_of_code
from tests.pretend.tensor import Device, DeviceTensor
from tests.pretend.timeline import HOST_S

# What ncclDataType_t has, and PyTorch hands to it.
TYPES = {
    torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.bool,
}  # fmt: skip


class Refused(AssertionError):
    """What NCCL would refuse, hang in, or compute something else from."""


class Collectives:
    """torch.distributed's operations for tensors of the pretended device, over an open gloo group.

    Every operation is announced to all workers, who compare its kind, communicator, type and sizes when they
    wait for it, and only then hand it to gloo, which would hang in what does not fit. The operations of all
    communicators are numbered together. Until then what will be received is filled with bits that are all 1
    (NaN, or -1), and a tensor in flight that is written is noticed.

    rate   bytes per second of each communicator's link, which passes one operation after another, each as
           long as the worker takes that sends most; operations of different communicators do not delay each
           other
    """

    def __init__(self, rate: float = float("inf")) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.rate = rate
        self.free: dict[str, float] = defaultdict(float)  # by communicator: when it has passed everything
        self.untimed: deque[Flight] = deque()  # operations of which it is not known when they are through
        self.groups = 0
        self.number = 0
        self.in_flight: set[int] = set()  # numbers of operations that nobody has waited for
        self.announced: deque[Flight] = deque()  # and not yet handed to gloo, in the order of their numbers
        self.gloo = {name: getattr(dist, name) for name in ("all_to_all_single", "broadcast", "all_reduce")}

    def get_backend(self, group: Any = None) -> str:
        return "nccl"

    def new_group(self, timeout: Any = None) -> str:
        self.groups += 1
        return f"communicator {self.groups}"

    def all_to_all_single(
        self,
        incoming: torch.Tensor,
        outgoing: torch.Tensor,
        receive: Sequence[int],
        send: Sequence[int],
        async_op: bool,
        group: str | None = None,
    ) -> Flight:
        width = outgoing.shape[1:].numel()
        return self._post(
            "all_to_all_single",
            group,
            sum(send) * width * outgoing.element_size(),
            [incoming],
            [outgoing],
            f"{outgoing.dtype} {width}",
            lambda into, out: self.gloo["all_to_all_single"](
                into[0], out[0], list(receive), list(send), async_op=True
            ),
            send=send,
            receive=receive,
        )

    def broadcast(self, block: torch.Tensor, src: int, async_op: bool, group: str | None = None) -> Flight:
        own = src == self.rank
        return self._post(
            "broadcast",
            group,
            (self.size - 1) * block.nbytes if own else 0,
            [] if own else [block],
            [block] if own else [],
            f"{src} {block.dtype} {block.numel()}",
            lambda into, out: self.gloo["broadcast"]((into + out)[0], src=src, async_op=True),
        )

    def all_reduce(self, tensor: torch.Tensor, async_op: bool, group: str | None = None) -> Flight:
        return self._post(
            "all_reduce",
            group,
            2 * (self.size - 1) * tensor.nbytes // self.size,
            [tensor],
            [],
            f"{tensor.dtype} {tensor.numel()}",
            lambda into, out: self.gloo["all_reduce"](into[0], async_op=True),
        )

    def _post(
        self,
        name: str,
        communicator: str | None,
        nbytes: int,
        incoming: list[torch.Tensor],
        outgoing: list[torch.Tensor],
        agreed: str,
        start: Callable[[list[torch.Tensor], list[torch.Tensor]], dist.Work],
        send: Sequence[int] = (),
        receive: Sequence[int] = (),
    ) -> Flight:
        for tensor in (*incoming, *outgoing):
            checked(name, tensor)
        self.number += 1
        Device.note(COLLECTIVE, name)
        nobody = [0] * self.size
        where = communicator or "the default communicator"
        Device.time.host += HOST_S
        begun = max(Device.time.host, Device.time.current.ready)
        told = torch.tensor(
            [
                self.number,
                zlib.crc32(f"{name} {agreed} {where}".encode()),
                *(send or nobody),
                *(receive or nobody),
                nbytes,
                round(begun * 1e9),
            ]
        )
        heard = [torch.empty_like(told) for _ in range(self.size)]
        flight = Flight(
            self,
            f"{name} {agreed} of {where} at {line_of_code()}",
            where,
            dist.all_gather(heard, told, async_op=True),
            heard,
            [(tensor, tensor.inner.clone()) for tensor in incoming],
            [(tensor, tensor.inner.clone()) for tensor in outgoing],
            start,
        )
        for tensor in incoming:
            as_bytes(tensor.inner).fill_(255)
        self.in_flight.add(self.number)
        self.announced.append(flight)
        self.untimed.append(flight)
        return flight

    def through(self) -> float:
        """When all that is in flight is through."""
        # gloo must have it all: the other workers may wait for an operation before they begin the next one.
        while self.announced:
            self.announced.popleft().hand_over()
        return max(self.free.values(), default=0.0)


class Flight:
    """An operation under way, with torch.distributed.Work's `wait`.

    announced, heard    what all workers tell of it: [number, kind, rows to each worker, rows from each,
                        bytes, nanoseconds when it was begun]
    incoming, outgoing  tensors, each with the memory that gloo reads or writes instead
    start               hands this memory to gloo
    """

    def __init__(
        self,
        group: Collectives,
        name: str,
        communicator: str,
        announced: dist.Work,
        heard: list[torch.Tensor],
        incoming: list[tuple[DeviceTensor, torch.Tensor]],
        outgoing: list[tuple[DeviceTensor, torch.Tensor]],
        start: Callable[[list[torch.Tensor], list[torch.Tensor]], dist.Work],
    ):
        self.group, self.name, self.announced, self.heard = group, name, announced, heard
        self.incoming, self.outgoing, self.start, self.number = incoming, outgoing, start, group.number
        self.communicator, self.timed = communicator, False
        self.work: dist.Work | None = None

    @property
    def known(self) -> bool:
        earlier = (each for each in self.group.untimed if each.number <= self.number)
        return all(each.announced.is_completed() for each in earlier)

    @property
    def due(self) -> float:
        while not self.timed:
            self.group.untimed.popleft().find_due()
        return self.ended

    def find_due(self) -> None:
        """Once those before it in its communicator are through, and all workers have begun it."""
        self.announced.wait()
        told = [heard.tolist() for heard in self.heard]
        begun, seconds = (
            max(each[-1] for each in told) / 1e9,
            max(each[-2] for each in told) / self.group.rate,
        )
        self.ended = max(begun, self.group.free[self.communicator]) + seconds
        self.group.free[self.communicator], self.timed = self.ended, True

    def wait(self) -> None:
        """Of the current stream. What the device's own stream waits for is there when this returns."""
        stream = Device.time.current
        if stream is not Device.time.main:
            stream.flights.append(self)
            return
        if self.number not in self.group.in_flight:
            return
        self.group.in_flight.remove(self.number)
        # gloo matches operations by their order, which that of the waits need not be.
        while self.work is None:
            self.group.announced.popleft().hand_over()
        self.work.wait()
        stream.ready = max(stream.ready, self.due)
        for tensor, value in self.incoming:
            if not bool((as_bytes(tensor.inner) == 255).all()):
                raise Refused(f"{self.name}: what it receives was written while it was in flight")
            tensor.inner.copy_(value)
        for tensor, value in self.outgoing:
            if not torch.equal(as_bytes(tensor.inner), as_bytes(value)):
                raise Refused(f"{self.name}: what it sends was written while it was in flight")

    def hand_over(self) -> None:
        """To gloo; Refused where another worker's operation of this number is another."""
        self.announced.wait()
        assert self.due, "gloo matches operations in the order in which links pass them"
        rank, size = self.group.rank, self.group.size
        told = [heard.tolist() for heard in self.heard]
        for other in range(size):
            if told[other][:2] != told[rank][:2]:
                raise Refused(
                    f"worker {rank} is in {self.name}, its operation {self.number};"
                    f" worker {other} is in another"
                )
            sent, expected = told[other][2 + rank], told[rank][2 + size + other]
            if sent != expected:
                raise Refused(
                    f"{self.name}: worker {other} sends {sent} rows, of which"
                    f" worker {rank} expects {expected}"
                )
        self.work = self.start([value for _, value in self.incoming], [value for _, value in self.outgoing])


def checked(name: str, tensor: torch.Tensor) -> None:
    """Refused for a tensor that NCCL does not take."""
    if not isinstance(tensor, DeviceTensor):
        raise Refused(f"{name}: Tensors must be CUDA and dense, at {line_of_code()}")
    if not (tensor.is_contiguous() and tensor.inner.is_contiguous()):
        raise Refused(f"{name}: Tensors must be contiguous, at {line_of_code()}")
    if tensor.dtype not in TYPES:
        raise Refused(f"{name}: {tensor.dtype} is no type of NCCL's, at {line_of_code()}")


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)
