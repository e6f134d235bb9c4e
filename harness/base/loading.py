"""Importing large modules faster."""

import gc
import importlib
import os
import platform
import sys
from types import ModuleType


def load(module: str) -> ModuleType:
    """The module of this name, imported where it is not yet. Garbage collection is off meanwhile: it would
    look through all that is imported again and again, which takes a fifth of the time of the import.

    All objects that exist then stay, so later collections leave them out, in this process and in its forks.
    """
    if module in sys.modules:
        return sys.modules[module]
    if platform.machine() == "x86_64":
        # Keep numpy's and scipy's BLAS (OpenBLAS) from starting threads: a process that is to be forked must
        # have none, and where none can be started its handler for forks hangs. Here, on x86-64, torch has
        # another BLAS (MKL); elsewhere it has the same, which must keep its threads.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
