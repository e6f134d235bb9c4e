"""The form in which a worker's rows travel: in pinned host memory where rows of a GPU do not go over NCCL,
and rounded to bfloat16 where the run asks for it.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch

from harness.comm.transport import Transport

WIRES = ("float32", "bfloat16")
# Purposes whose rows are never rounded: evaluation is exact, whatever training sends; and parts of a sum
# travel exactly, as an all-reduce does.
EXACT = frozenset({"evaluate", "sums"})
# The type under which bfloat16 rows are handed over. Transports only move their bytes, but NCCL does not know
# 16-bit integers.
WIRED = torch.float16

Key = tuple[str | int, ...]  # which buffer: direction, purpose, layer, ...


class Wire:
    """The memory that a worker's transport reads and writes: buffers, and conversions to and from them.

    wire   "float32" or "bfloat16", as `Comm` says
    """

    def __init__(self, device: torch.device, transport: Transport, wire: str):
        self.device, self.transport = device, transport
        self.halves = wire == "bfloat16"
        self.staged = device.type == "cuda" and transport.on_host
        self._buffers: dict[tuple[Key, str], torch.Tensor] = {}
        self._once = False

    @contextlib.contextmanager
    def for_once(self) -> Iterator[None]:
        """Keep no buffers for what is started while this is open, since it is sent once in a run. For
        features that are fetched once, kept buffers would be the larger part of a worker's memory.
        """
        before, self._once = self._once, True
        try:
            with self.transport.for_once():
                yield
        finally:
            self._once = before

    def buffer(
        self, key: Key, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | None = None
    ) -> torch.Tensor:
        """A buffer that is kept from epoch to epoch, except inside `for_once`: fresh memory for every
        transfer costs more than the transfer. It is replaced where the shape or the type changes."""
        device = device or self.device
        have = self._buffers.get((key, device.type))
        if have is None or have.shape != shape or have.dtype != dtype:
            have = torch.empty(
                shape, dtype=dtype, device=device, pin_memory=self.staged and device.type == "cpu"
            )
            if not self._once:
                self._buffers[key, device.type] = have
        return have

    def outgoing(self, key: Key, shape: tuple[int, ...], dtype: torch.dtype, halved: bool) -> torch.Tensor:
        """A tensor to fill and hand to `start_exchange`, once. Where the transport has memory of its own it
        lies there, which saves a copy; rows that travel `halved` are copied in any case.
        """
        own = None if self.staged or halved else self.transport.outgoing(shape, dtype)
        return self.buffer(key, shape, dtype) if own is None else own

    @property
    def _wire_device(self) -> torch.device:
        return torch.device("cpu") if self.staged else self.device

    def halved(self, dtype: torch.dtype, layer: int, purpose: str) -> bool:
        """Whether rows of this type, layer and purpose travel as bfloat16."""
        return self.halves and dtype.is_floating_point and layer >= 0 and purpose not in EXACT

    def _wire(self, tensor: torch.Tensor, key: Key, halved: bool = False) -> torch.Tensor:
        """The tensor as the transport takes it: itself, or a copy, which is bfloat16 where `halved`, and
        pinned where rows of a GPU travel through host memory.
        """
        tensor = tensor.contiguous()
        if not halved and tensor.device.type == self._wire_device.type:
            return tensor
        dtype = torch.bfloat16 if halved else tensor.dtype
        wire = self.buffer((*key, "wire"), tuple(tensor.shape), dtype, self._wire_device).copy_(tensor)
        return wire.view(WIRED) if halved else wire

    def _wire_like(self, tensor: torch.Tensor, key: Key, halved: bool) -> torch.Tensor:
        """A tensor into which to receive what a peer's `_wire` made of a tensor like this one."""
        if halved:
            shape = tuple(tensor.shape)
            return self.buffer((*key, "wire in"), shape, WIRED, self._wire_device)
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) if self.staged else tensor

    def _unwire(self, tensor: torch.Tensor, wire: torch.Tensor) -> Callable[[], object] | None:
        """What to call once `wire` has been received: it copies it into `tensor`. None where they are one."""
        if wire is tensor:
            return None
        halved = wire.dtype == WIRED != tensor.dtype
        return lambda: tensor.copy_(wire.view(torch.bfloat16) if halved else wire)
