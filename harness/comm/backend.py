"""The interface between a representation store (`harness.comm.store`) and the place where its bytes live:
shared memory of one host, or a Redis server."""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.base.errors import InputError, package

# The environment variable with the server's password, which must not be kept with the run's settings.
PASSWORD = "HALOBENCH_REDIS_PASSWORD"
EMPTY = -(2**62)  # stamp of a slot that holds nothing, or is being written


@dataclass(frozen=True)
class Layout:
    """What every backend needs to know. A *slice* is what one worker has pushed of one layer.

    rank     this worker
    sizes    by owner: the number of rows of its partition
    rows     by owner: [m_owner] int32, ascending: which rows of its partition are in this worker's halo
    widths   {layer: F}
    slots    how many pushes a slice keeps, the latest ones
    dtype    the type of a row's values
    """

    rank: int
    sizes: list[int]
    rows: list[np.ndarray]
    widths: dict[int, int]
    slots: int
    dtype: np.dtype


def check_address(address: str) -> None:
    """Raise InputError where `address` names no store, where the client of that store is not installed, or
    where `address` holds a password; the message does not repeat the password."""
    before, _, place = address.rpartition("@")
    scheme, user = before.split("://", 1) if "://" in before else ("redis", before)
    if user.partition(":")[2] or re.search("[?&]password=", address):
        shown = (f"{scheme}://***@" if before else "") + place.partition("?")[0]
        raise InputError(
            f"store={shown} holds a password, which would be kept with the run; leave it out and set the"
            f" environment variable {PASSWORD}"
        )
    if address != "shared" and not address.startswith(("redis://", "rediss://", "unix://")):
        raise InputError(f'store="{address}" is not known; give shared, or redis://HOST:PORT')
    if address != "shared":
        package("redis", "redis", f"store={address}")


class Backend(Protocol):
    """Where slices live. The store's background thread calls these methods; rows are numpy arrays [n, F] of
    the model's type.
    """

    address: str
    layout: Layout

    def write(self, layer: int, slot: int, rows: np.ndarray, stamp: int) -> None:
        """Put rows [n, F] into a slot of this worker's slice, and mark the slot with `stamp`."""

    def read(self, layer: int, owner: int, stamp: int | None, out: np.ndarray) -> int:
        """Copy this worker's halo rows that `owner` pushed under `stamp` (None: its newest) into out
        [m_owner, F]; returns their stamp.
        """

    def stamps(self, layer: int) -> list[int]:
        """The stamps of this worker's slice, by slot; EMPTY for a slot that holds nothing."""

    def slice(self, layer: int, slot: int) -> np.ndarray:
        """The rows [n, F] in a slot of this worker's slice."""

    def close(self) -> None: ...
