"""Factories and moves to device cuda, which PyTorch without CUDA would refuse."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree

from tests.pretend.tally import LAUNCH, SYNCHRONISATION
from tests.pretend.tensor import Device, DeviceTensor, MixedDevices, SparseMatrix, target_device, to_device


class DeviceMode(TorchFunctionMode):
    """While this is open on a thread, what it makes on device cuda is a DeviceTensor."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)  # needs a driver
        name = getattr(func, "__name__", "")
        on_device = [isinstance(a, DeviceTensor) for a in tree.arg_tree_leaves(*args, **kwargs)]
        if name == "sparse_csr_tensor" and any(on_device):
            if not all(isinstance(a, DeviceTensor) for a in args[:3]):
                raise MixedDevices("a sparse matrix of tensors of two devices")
            return SparseMatrix(torch.sparse_csr_tensor(*[a.inner for a in args[:3]], *args[3:], **kwargs))
        if name == "addmm" and isinstance(args[1], SparseMatrix):
            return args[1].added(args[0], *args[2:], **kwargs)
        if name in ("to", "cuda") and args and not isinstance(args[0], DeviceTensor):
            if name == "cuda" or target_device(args, kwargs) == "cuda":
                return to_device(args[0], [*args[1:], *kwargs.values()])
        elif kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda":
            return self.made(func, name, args, kwargs, any(on_device))
        return func(*args, **kwargs)

    def made(self, func: Any, name: str, args: Any, kwargs: dict[str, Any], like: bool) -> Any:
        """What a factory makes on the device; `like`: from a tensor of the device, as `zeros_like` does."""
        del kwargs["device"]
        if like:
            return func(*args, **kwargs)
        made = DeviceTensor(func(*args, **kwargs, device="cpu"))
        if name in ("tensor", "as_tensor"):
            Device.note(SYNCHRONISATION, "copy to the device")
        if name != "empty":
            Device.note(LAUNCH, name)
        return made
