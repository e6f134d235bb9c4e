"""What a representation store asks of the place where its bytes live: shared memory of one host, or Redis."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.base.errors import InputError, package

PASSWORD = "HALOBENCH_REDIS_PASSWORD"  # the environment variable: a password is no part of a run
EMPTY = -(2**62)  # stamp of a slot that holds nothing, or is being written


@dataclass(frozen=True)
class Layout:
    """What every backend needs to know.

    rank     of this worker
    sizes    by owner: rows of its partition
    rows     by owner: [m_owner] int32 rows of its that this worker's halo has, ascending
    widths   {layer: F}
    slots    pushes that a slice keeps
    dtype    of a row's values
    """

    rank: int
    sizes: list[int]
    rows: list[np.ndarray]
    widths: dict[int, int]
    slots: int
    dtype: np.dtype


def check_address(address: str) -> None:
    """InputError where `address` names no store, where its client is not installed, or where it holds a
    password, which the sentence does not repeat."""
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
        package("redis", "redis")


class Backend(Protocol):
    """Where slices live. Called from the store's thread; rows are numpy arrays of the layer's width and the
    model's type.
    """

    address: str
    layout: Layout

    def write(self, layer: int, slot: int, rows: np.ndarray, stamp: int) -> None:
        """Put rows [n, F] into a slot of the own slice."""

    def read(self, layer: int, owner: int, stamp: int | None, out: np.ndarray) -> int:
        """Put the halo rows that `owner` holds into out [m_owner, F]; returns their stamp. None asks for the
        newest.
        """

    def stamps(self, layer: int) -> list[int]:
        """Of the own slice, by slot."""

    def slice(self, layer: int, slot: int) -> np.ndarray:
        """The own rows [n, F] in a slot."""

    def close(self) -> None: ...
