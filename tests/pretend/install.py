"""The pretended device in place of CUDA."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.optim import optimizer
from torch.utils import _pytree as tree

from harness.comm import clock
from harness.comm.recorder import Recorder
from tests.pretend.collectives import Collectives
from tests.pretend.mode import DeviceMode
from tests.pretend.tally import DRAIN, SYNCHRONISATION, Tally
from tests.pretend.tensor import CUDA, Device, DeviceTensor
from tests.pretend.timeline import Event, Stream, Timeline


class CurrentStream(Stream):
    """A stream as torch.cuda has it."""

    device = CUDA

    def __init__(self) -> None:
        super().__init__(Device.time)

    def synchronize(self) -> None:
        with Device.time.on(self):
            Device.note(SYNCHRONISATION, "stream")


class CudaEvent(Event):
    """An event as torch.cuda has it."""

    def __init__(self, enable_timing: bool = False):
        assert enable_timing, "an event without timing cannot say when it passed"
        super().__init__(Device.time)


@contextlib.contextmanager
def pretended(recorder: Recorder, nccl: bool, rate: float = float("inf")) -> Iterator[Tally]:
    """While this is open, this thread has device cuda; gives what is counted inside the train clock of
    `recorder`.

    nccl   whether torch.distributed's open group stands for one of NCCL: a GPU for each worker. Otherwise
           workers share a GPU and their rows are staged through memory of the host
    rate   bytes per second between workers, of the device's own time (`tests.pretend.timeline`)
    """
    tally, timeline = Tally(recorder), Timeline()
    group = Collectives(rate) if nccl else None

    def synchronize(device: Any = None) -> None:
        Device.note(SYNCHRONISATION, "device")
        if group is not None and group.in_flight:
            Device.note(DRAIN, f"{len(group.in_flight)} operations in flight")
            timeline.wait(group.through())

    save, load = torch.save, torch.load

    def saved(value: Any, *args: Any, **options: Any) -> None:
        on_host = tree.tree_map(lambda v: v.inner.clone() if isinstance(v, DeviceTensor) else v, value)
        save(on_host, *args, **options)

    def loaded(*args: Any, map_location: Any = None, **options: Any) -> Any:
        value = load(*args, map_location="cpu", **options)
        if map_location is None or torch.device(map_location).type == "cpu":
            return value
        return tree.tree_map(lambda v: DeviceTensor(v) if isinstance(v, torch.Tensor) else v, value)

    cuda = {
        "is_available": lambda: True,
        "device_count": dist.get_world_size if nccl else lambda: 1,
        "set_device": lambda device: None,
        "synchronize": synchronize,
        "current_stream": lambda device=None: timeline.current,
        "stream": timeline.on,
        "Stream": CurrentStream,
        "Event": CudaEvent,
    }
    of_group = ("get_backend", "new_group", *group.gloo) if group is not None else ()
    overwriting = torch.__future__.get_overwrite_module_params_on_conversion()
    with contextlib.ExitStack() as stack:
        for name, function in cuda.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        for name in of_group:
            stack.enter_context(mock.patch.object(dist, name, getattr(group, name)))
        stack.enter_context(mock.patch.object(torch, "save", saved))
        stack.enter_context(mock.patch.object(torch, "load", loaded))
        # Optimisers fuse their loops on a GPU, for tensors of types that they know.
        known = [*optimizer._foreach_supported_types, DeviceTensor]
        stack.enter_context(mock.patch.object(optimizer, "_foreach_supported_types", known))
        stack.enter_context(mock.patch.object(Device, "tally", tally))
        stack.enter_context(mock.patch.object(Device, "time", timeline, create=True))
        timeline.main = timeline.current = CurrentStream()
        stack.enter_context(mock.patch.object(clock, "time", timeline))
        thread = stack.enter_context(ThreadPoolExecutor(1, initializer=DeviceMode().__enter__))
        stack.enter_context(mock.patch.object(Device, "autograd", thread, create=True))
        # A module's parameters change their type when it is moved.
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwriting)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.enter_context(DeviceMode())
        yield tally
