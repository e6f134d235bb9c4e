"""The knobs `straggler`, `delay`, `delay_spread` and `slowdown`, by which a system names a slow worker."""

from __future__ import annotations

from harness.base.errors import InputError
from harness.core.straggler import Straggler


def slowed(rank: int, delay: float, spread: float, slowdown: float) -> Straggler | None:
    """The straggler of these knobs; None for rank -1, which names no worker. InputError where they are of no
    use.
    """
    named = Straggler(max(rank, 0), delay, spread, slowdown)
    if rank >= 0:
        return named
    if delay or spread or slowdown > 1:
        raise InputError(
            "straggler=-1 names no worker to delay; give straggler=RANK, or delay=0 delay_spread=0 slowdown=1"
        )
    return None


def refusal(straggler: Straggler | None, workers: int) -> str | None:
    """Why there is no such worker; None where there is, or where none is named."""
    said = straggler.refusal(workers) if straggler is not None else None
    return said and f"straggler{said}, or -1 for none"
