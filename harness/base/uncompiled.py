"""torch without its compiler, until somebody asks for that.

torch's optimisers import torch._dynamo (a second and a half) in order to tell it to keep
out of their steps, and every process group asks it to forget what it knows. Neither says anything to a
compiler that has not been loaded, so a module that knows these requests alone stands in its place. It gives
way to torch._dynamo as soon as anything else is asked of it, as torch.compile does.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

NAME = "torch._dynamo"


class _Unloaded(ModuleType):
    """In the place of torch._dynamo while nothing has been compiled."""

    # What there is to forget: nothing.
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Asked for inside a graph that is being traced: there is none."""

    @staticmethod
    def disable(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        """`function`, which the compiler, once it is loaded, is to leave alone."""
        disabled = functools.cache(lambda: _compiler().disable(function, *args, **kwargs))

        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            unloaded = isinstance(sys.modules.get(NAME), _Unloaded)
            return (function if unloaded else disabled())(*given, **named)

        return call

    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for its file, also in the middle of another import. Only who imports a
        # part of the compiler asks where its parts are.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {NAME!r} has no attribute {name!r}")
        return getattr(_compiler(), name)


def _compiler() -> ModuleType:
    """torch._dynamo itself, loaded where it has not been."""
    if isinstance(sys.modules.get(NAME), _Unloaded):
        del sys.modules[NAME]
    return importlib.import_module(NAME)


def keep_compiler_out() -> None:
    """Have torch work without its compiler for as long as nothing is compiled; where it is loaded already,
    nothing changes."""
    if NAME not in sys.modules:
        sys.modules[NAME] = unloaded = _Unloaded(NAME, "see harness.base.uncompiled")
        setattr(torch, "_dynamo", unloaded)  # noqa: B010 -- to the type checker it is torch's own module
