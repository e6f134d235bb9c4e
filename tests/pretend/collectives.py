"""NCCL as gloo behind checks."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from tests.pretend.tally import COLLECTIVE, line_of_code
from tests.pretend.tensor import Device, DeviceTensor

# What ncclDataType_t has, and PyTorch hands to it.
TYPES = {
    torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.bool,
}  # fmt: skip


class Refused(AssertionError):
    """What NCCL would refuse, hang in, or compute something else from."""


class Collectives:
    """torch.distributed's operations for tensors of the pretended device, over an open gloo group.

    Every operation is announced to all workers, who compare its kind, type and sizes when they wait for it,
    and only then hand it to gloo, which would hang in what does not fit. Until then what will be received is
    filled with bits that are all 1 (NaN, or -1), and a tensor in flight that is written is noticed.
    """

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.number = 0
        self.in_flight: set[int] = set()  # numbers of operations that nobody has waited for
        self.announced: deque[Flight] = deque()  # and not yet handed to gloo, in the order of their numbers
        self.gloo = {name: getattr(dist, name) for name in ("all_to_all_single", "broadcast", "all_reduce")}

    def get_backend(self, group: Any = None) -> str:
        return "nccl"

    def all_to_all_single(
        self,
        incoming: torch.Tensor,
        outgoing: torch.Tensor,
        receive: Sequence[int],
        send: Sequence[int],
        async_op: bool,
    ) -> Flight:
        width = outgoing.shape[1:].numel()
        return self._post(
            "all_to_all_single",
            [incoming],
            [outgoing],
            f"{outgoing.dtype} {width}",
            lambda into, out: self.gloo["all_to_all_single"](
                into[0], out[0], list(receive), list(send), async_op=True
            ),
            send=send,
            receive=receive,
        )

    def broadcast(self, block: torch.Tensor, src: int, async_op: bool) -> Flight:
        own = src == self.rank
        return self._post(
            "broadcast",
            [] if own else [block],
            [block] if own else [],
            f"{src} {block.dtype} {block.numel()}",
            lambda into, out: self.gloo["broadcast"]((into + out)[0], src=src, async_op=True),
        )

    def all_reduce(self, tensor: torch.Tensor, async_op: bool) -> Flight:
        return self._post(
            "all_reduce",
            [tensor],
            [],
            f"{tensor.dtype} {tensor.numel()}",
            lambda into, out: self.gloo["all_reduce"](into[0], async_op=True),
        )

    def _post(
        self,
        name: str,
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
        told = torch.tensor(
            [self.number, zlib.crc32(f"{name} {agreed}".encode()), *(send or nobody), *(receive or nobody)]
        )
        heard = [torch.empty_like(told) for _ in range(self.size)]
        flight = Flight(
            self,
            f"{name} {agreed} at {line_of_code()}",
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
        return flight


class Flight:
    """An operation under way, with torch.distributed.Work's `wait`.

    announced, heard    what all workers tell of it: [number, kind, rows to each worker, rows from each]
    incoming, outgoing  tensors, each with the memory that gloo reads or writes instead
    start               hands this memory to gloo
    """

    def __init__(
        self,
        group: Collectives,
        name: str,
        announced: dist.Work,
        heard: list[torch.Tensor],
        incoming: list[tuple[DeviceTensor, torch.Tensor]],
        outgoing: list[tuple[DeviceTensor, torch.Tensor]],
        start: Callable[[list[torch.Tensor], list[torch.Tensor]], dist.Work],
    ):
        self.group, self.name, self.announced, self.heard = group, name, announced, heard
        self.incoming, self.outgoing, self.start, self.number = incoming, outgoing, start, group.number
        self.work: dist.Work | None = None

    def wait(self) -> None:
        if self.number not in self.group.in_flight:
            return
        self.group.in_flight.remove(self.number)
        # gloo matches operations by their order, which that of the waits need not be.
        while self.work is None:
            self.group.announced.popleft().hand_over()
        self.work.wait()
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
