"""Who ends with whom."""

from __future__ import annotations

import ctypes
import os
import signal


def end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent`, which started it, ends.

    The kernel does so even where this process is stopped, and could not notice by itself."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
