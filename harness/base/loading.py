"""Importing much at once."""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType


def load(module: str) -> ModuleType:
    """The module called so; where it has to be imported, without garbage collection meanwhile, which would
    look through all that is imported again and again (a fifth of the time of importing it).

    What is there then stays, so later collections leave it out, in this process and in those forked from it.
    """
    if module in sys.modules:
        return sys.modules[module]
    enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
