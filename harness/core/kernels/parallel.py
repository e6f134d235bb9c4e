"""How many threads a compiled loop may use: what torch was told, without disturbing torch."""

import numba
import torch


def use_threads() -> int:
    """Let numba's next parallel loop use as many threads as torch does, and return that number.

    Numba and torch share one OpenMP runtime. When numba starts its threads it sets that runtime to all cores,
    and torch with it, so torch's number is set again afterwards. With one thread nothing is started: the
    caller runs its serial form.
    """
    wanted = torch.get_num_threads()
    threads: int = min(wanted, numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]  # set when numba is imported
    if threads > 1:
        numba.set_num_threads(threads)
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)
    return threads
