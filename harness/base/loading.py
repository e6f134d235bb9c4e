"""Importing much at once."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import sys
from types import ModuleType


def load(module: str) -> ModuleType:
    """The module called so; where it has to be imported, without garbage collection meanwhile, which would
    look through all that is imported again and again (a fifth of the time of importing it).

    What is there then stays, so later collections leave it out, in this process and in those forked from it.
    """
    if module in sys.modules:
        return sys.modules[module]
    if platform.machine() == "x86_64":
        # numpy's and scipy's BLAS would start threads, of which a fork needs none to be there; where none can
        # be started, its handler for forks hangs. torch's is another here (MKL), and elsewhere the same.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
