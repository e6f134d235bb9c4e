"""Compiled loops by one thread or by as many as torch was told, without disturbing torch."""

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
import torch


def by_threads(body: Any) -> Callable[..., None]:
    """`body(bounds, ..)` compiled, whose loop over `numba.prange(len(bounds) - 1)` takes each part from one
    of the bounds to the next: by a thread for each part, or by the caller itself where there is one part.
    """
    serial = numba.njit(cache=True, nogil=True)(body)
    twin = types.FunctionType(body.__code__, body.__globals__, body.__name__)
    twin.__qualname__ = f"{body.__qualname__}_parallel"  # numba keeps what it compiled by this name
    parallel = numba.njit(cache=True, nogil=True, parallel=True)(twin)

    @functools.wraps(body)
    def run(bounds: Any, *arguments: Any) -> None:
        (serial if len(bounds) == 2 else parallel)(bounds, *arguments)

    return run


def use_threads() -> int:
    """Let numba's next parallel loop use as many threads as torch does, and return that number.

    Numba and torch share one OpenMP runtime. When numba starts its threads it sets that runtime to all cores,
    and torch with it, so torch's number is set again afterwards. With one thread nothing is started.
    """
    wanted = torch.get_num_threads()
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba is imported
    threads: int = min(wanted, most)
    if threads > 1:
        numba.set_num_threads(threads)
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)
    return threads
