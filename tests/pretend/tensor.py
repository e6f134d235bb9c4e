"""Tensors of the pretended device: CPU tensors inside, device cuda outside."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch.utils import _pytree as tree

from tests.pretend.tally import LAUNCH, SYNCHRONISATION, Tally, behalf, line_of_code
from tests.pretend.timeline import Timeline

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
COPIES = {aten.copy_, aten._copy_from}
INDEXED = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}
# The size of their result, or the result itself, is known to the host only once the device has computed it.
HOST_READS = {
    aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim,
    aten.unique_consecutive, aten.bincount, aten.equal,
}  # fmt: skip
# Memory is given out, nothing is written.
ALLOCATIONS = {
    aten.empty_like,
    aten.new_empty,
    aten.new_empty_strided,
    aten._unsafe_view,
    aten._reshape_alias,
}


class MixedDevices(RuntimeError):
    """Tensors of two devices in one operation, as CUDA refuses them."""


class Device:
    """The device that `install` has put in place: who counts what is asked of it, when it gets there, and the
    thread on which autograd runs its backward passes.
    """

    tally: Tally | None = None
    time: Timeline
    autograd: ThreadPoolExecutor

    @classmethod
    def note(cls, kind: str, what: str) -> None:
        if cls.tally is None:
            return
        cls.tally.note(kind, what)
        if kind == LAUNCH:
            cls.time.launch()
        elif kind == SYNCHRONISATION:
            cls.time.wait(cls.time.current.ready)


class DeviceTensor(torch.Tensor):
    """A tensor that Python sees on device cuda; `inner` holds its numbers.

    Autograd treats it as a CPU tensor, whose backward pass would run on the calling thread: it is handed to
    another one, as a device's is.
    """

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> DeviceTensor:
        assert not isinstance(inner, DeviceTensor) and inner.layout == torch.strided
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="cpu",
        )

    def __init__(self, inner: torch.Tensor):
        self.inner = inner.detach()

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({tuple(self.shape)}, {self.dtype})"

    def backward(self, *_: Any, **__: Any) -> None:
        """Straight to the engine: inside `Tensor.backward` factories would not be seen by the mode."""
        ones, line = torch.ones_like(self), line_of_code()

        def run() -> None:
            with behalf(line):
                torch.autograd.Variable._execution_engine.run_backward(
                    (self,), (ones,), False, False, (), allow_unreachable=True, accumulate_grad=True
                )

        Device.autograd.submit(run).result()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("numpy", "data_ptr", "__array__", "untyped_storage"):
            raise TypeError(f"can't convert cuda:0 device type tensor by {name}, at {line_of_code()}")
        if name == "tolist":
            Device.note(SYNCHRONISATION, "tolist")
            return args[0].inner.tolist()
        if name in ("to", "cpu", "cuda"):
            target = "cpu" if name == "cpu" else "cuda" if name == "cuda" else target_device(args, kwargs)
            if target == "cpu":
                return to_host(args[0], [*args[1:], *kwargs.values()])
            args, kwargs = without_device(args, kwargs)
            if name == "cuda" or (len(args) == 1 and "dtype" not in kwargs):
                return args[0]
        elif name == "to_sparse_csr":
            return SparseMatrix(args[0].inner.to_sparse_csr())
        elif name == "__setitem__" and isinstance(args[2], bool | int | float):
            # The device fills with a number by itself, while C++ would make a CPU tensor of it here.
            args = (*args[:2], DeviceTensor(torch.tensor(args[2], dtype=args[0].dtype)))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree.arg_tree_leaves(*args, **kwargs)
        outer = {id(each.inner): each for each in leaves if isinstance(each, DeviceTensor)}
        host = [e for e in leaves if isinstance(e, torch.Tensor) and not isinstance(e, DeviceTensor)]
        count(func, args, kwargs, host)
        values = func(*tree.tree_map(_inner, args), **tree.tree_map(_inner, kwargs))
        if func.overloadpacket in COPIES and not isinstance(args[0], DeviceTensor):
            return args[0]

        def outside(value: Any) -> Any:
            # What was written in place comes back as the tensor that it was.
            if id(value) in outer:
                return outer[id(value)]
            return DeviceTensor(value) if isinstance(value, torch.Tensor) else value

        return tree.tree_map(outside, values)


class SparseMatrix:
    """A sparse CSR matrix of the device, of which only products are asked."""

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    def __matmul__(self, x: torch.Tensor) -> DeviceTensor:
        self.noted(x)
        return DeviceTensor(self.inner @ x.inner)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """By which PyTorch's functions take it for a tensor; `DeviceMode` answers for those it knows."""
        raise NotImplementedError(f"{func} of a sparse matrix of the device, at {line_of_code()}")

    def added(self, base: torch.Tensor, x: torch.Tensor, beta: float, out: torch.Tensor) -> torch.Tensor:
        """torch.addmm(base, self, x, beta=beta, out=out)."""
        self.noted(base, x, out)
        torch.addmm(base.inner, self.inner, x.inner, beta=beta, out=out.inner)
        return out

    def noted(self, *dense: torch.Tensor) -> None:
        if not all(isinstance(each, DeviceTensor) for each in dense):
            raise MixedDevices(f"a sparse matrix on cuda:0 by a tensor on cpu, at {line_of_code()}")
        Device.note(LAUNCH, "sparse product")


def count(func: Any, args: Sequence[Any], kwargs: dict[str, Any], host: list[torch.Tensor]) -> None:
    """Note what the operation costs; MixedDevices where CUDA would refuse its CPU tensors `host`."""
    packet, name = func.overloadpacket, func.overloadpacket.__name__
    if packet in COPIES and host:
        blocking = not (kwargs.get("non_blocking") or any(a is True for a in args[2:3]))
        way = "to the device" if isinstance(args[0], DeviceTensor) else "to the host"
        Device.note(LAUNCH, f"copy {way}")
        if blocking:
            Device.note(SYNCHRONISATION, f"copy {way}")
        return
    if packet in INDEXED and host and isinstance(args[0], DeviceTensor):
        Device.note(SYNCHRONISATION, "index from the host")
    elif any(each.dim() for each in host) or (host and packet in (aten.mm, aten.cat, aten.stack)):
        raise MixedDevices(
            f"Expected all tensors to be on the same device, but found cuda:0 and cpu in {func}, at"
            f" {line_of_code()}"
        )
    if packet in HOST_READS or (packet is aten.repeat_interleave and kwargs.get("output_size") is None):
        Device.note(SYNCHRONISATION, name)
    elif packet in INDEXED and _selects(args):
        Device.note(SYNCHRONISATION, "index by a mask")
    if not func.is_view and packet not in ALLOCATIONS:
        Device.note(LAUNCH, name)


def _selects(args: Sequence[Any]) -> bool:
    """Whether indices [...] of an operation hold a mask, whose ones the host must count; to fill with one
    number needs no count.
    """
    masks = [i for i in tree.tree_leaves(args[1]) if isinstance(i, torch.Tensor) and i.dtype == torch.bool]
    fills = len(args) > 2 and args[2].numel() == 1 and not (len(args) > 3 and args[3])
    return bool(masks) and not fills


def to_host(tensor: DeviceTensor, options: Sequence[Any]) -> torch.Tensor:
    """`tensor.to("cpu", *options)`."""
    return _moved(tensor, tensor.inner, "to the host", options)


def to_device(tensor: torch.Tensor, options: Sequence[Any]) -> DeviceTensor:
    """`tensor.to("cuda", *options)` of a CPU tensor."""
    return DeviceTensor(_moved(tensor, tensor.detach(), "to the device", options))


def _moved(tensor: torch.Tensor, values: torch.Tensor, way: str, options: Sequence[Any]) -> torch.Tensor:
    """A copy of `values`. The host waits for it unless `tensor.to` is told not to: `options` have a True."""
    assert not (tensor.requires_grad and torch.is_grad_enabled()), "a move has no gradient here"
    Device.note(LAUNCH, f"copy {way}")
    if True not in options:
        Device.note(SYNCHRONISATION, f"copy {way}")
    types = [each for each in options if isinstance(each, torch.dtype)]
    return values.to(types[0] if types else values.dtype, copy=True)


def target_device(args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
    """Type of the device that `x.to(...)`, whose first argument is x, asks for; None where for none."""
    named = kwargs.get("device", kwargs.get("other"))
    for each in (named, *args[1:]):
        if isinstance(each, torch.Tensor):
            return each.device.type
        if isinstance(each, str | torch.device):
            return torch.device(each).type
    return None


def without_device(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `x.to(...)` where x is on the device that it asks for."""
    kept = tuple(a for a in args[1:] if not isinstance(a, str | torch.device))
    return (args[0], *kept), {k: v for k, v in kwargs.items() if k != "device"}


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, DeviceTensor) else value
