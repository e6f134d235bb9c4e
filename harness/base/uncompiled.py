"""torch without its compiler, until somebody asks for that. torch's optimisers import torch._dynamo only to
keep it out of their steps, and that import takes every process 1.3 CPU seconds (torch 2.13)."""

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NAME = "torch._dynamo"


class _Unloaded(ModuleType):
    """In the place of torch._dynamo. It answers what torch asks while nothing has been compiled, and gives
    way to torch._dynamo itself as soon as anything else is asked of it, as torch.compile does."""

    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
    graph_break = staticmethod(lambda msg="": None)
    disable = staticmethod(lambda function, *args, **kwargs: function)

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for its file; only who imports a part of the compiler asks for its path.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
        return getattr(importlib.import_module(NAME), name)


def keep_compiler_out() -> None:
    """Have torch work without its compiler until something is compiled; if it is loaded, nothing changes."""
    if NAME not in sys.modules:
        sys.modules[NAME] = unloaded = _Unloaded(NAME, "see harness.base.uncompiled")
        setattr(torch, "_dynamo", unloaded)  # noqa: B010 -- to the type checker it is torch's own module
