"""What a worker's rows are while they travel: pinned where GPU rows go over sockets, and rounded where the
run asks for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from harness.comm.transport import Transport

WIRES = ("float32", "bfloat16")
# Purposes whose rows are never rounded: evaluation is exact, whatever the training sends, and parts of a sum
# travel as the sum itself would.
EXACT = frozenset({"evaluate", "sums"})
# The type under which bfloat16 rows are handed over. Transports only move their bytes, but NCCL does not know
# 16-bit integers.
WIRED = torch.float16

Key = tuple[str | int, ...]  # which buffer: direction, purpose, layer, ...


class Wire:
    """The memory that a worker's transport reads and writes."""

    def __init__(self, device: torch.device, transport: Transport, wire: str):
        self.device, self.transport = device, transport
        self.halves = wire == "bfloat16"
        self.staged = device.type == "cuda" and transport.on_host
        self._buffers: dict[tuple[Key, str], torch.Tensor] = {}
        self._once = False

    @contextlib.contextmanager
    def for_once(self) -> Iterator[None]:
        """What is started while this is open will not be sent again: no memory is kept for it. Of features
        that are fetched once it would be the larger part of all that a worker holds.
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
        """A buffer kept from epoch to epoch, but `for_once`: fresh memory for every transfer costs more than
        the transfer."""
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
        """A tensor to fill and hand to `start_exchange`, once: where the transport has one, its own, so that
        nothing is copied. Rows that travel `halved` are copied in any case.
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
        """The tensor as the transport takes it: itself, or a copy, in bfloat16 where `halved`, and pinned
        where GPU rows travel over gloo.
        """
        tensor = tensor.contiguous()
        if not halved and tensor.device.type == self._wire_device.type:
            return tensor
        dtype = torch.bfloat16 if halved else tensor.dtype
        wire = self.buffer((*key, "wire"), tuple(tensor.shape), dtype, self._wire_device).copy_(tensor)
        return wire.view(WIRED) if halved else wire

    def _wire_like(self, tensor: torch.Tensor, key: Key = (), halved: bool = False) -> torch.Tensor:
        """What a peer's `_wire` of such a tensor is received in."""
        if halved:
            shape = tuple(tensor.shape)
            return self.buffer((*key, "wire in"), shape, WIRED, self._wire_device)
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) if self.staged else tensor

    def _unwire(self, tensor: torch.Tensor, wire: torch.Tensor) -> Callable[[], object] | None:
        if wire is tensor:
            return None
        halved = wire.dtype == WIRED != tensor.dtype
        return lambda: tensor.copy_(wire.view(torch.bfloat16) if halved else wire)
