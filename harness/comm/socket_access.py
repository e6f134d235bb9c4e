"""Who else may connect to a worker's sockets: nobody, once the workers have met.

gloo listens for as long as its group is open, accepts whoever connects, and keeps a descriptor for each. Its
workers have all connected to each other when the group is open, so from then on nobody is let in: a filter on
the listening sockets drops what arrives there, before there is a connection.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
from collections.abc import Iterator

DROP = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction of Linux's packet filter: keep 0 bytes
SO_ATTACH_FILTER = 26


def listening() -> set[int]:
    """Inodes of this process's sockets that listen to a network."""
    return {os.fstat(each.fileno()).st_ino for each in _sockets() if _listens(each)}


def let_nobody_in(kept: set[int]) -> None:
    """Drop whatever arrives at this process's listening sockets, but for those `kept` (inodes); connections
    stay.
    """
    code = ctypes.create_string_buffer(DROP)
    program = struct.pack("HP", 1, ctypes.addressof(code))
    for each in _sockets():
        if _listens(each) and os.fstat(each.fileno()).st_ino not in kept:
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def _sockets() -> Iterator[socket.socket]:
    """This process's sockets, each through a descriptor of its own."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            own = os.dup(number) if stat.S_ISSOCK(os.fstat(number).st_mode) else None
        except OSError:  # closed meanwhile
            continue
        if own is not None:
            with socket.socket(fileno=own) as each:
                yield each


def _listens(each: socket.socket) -> bool:
    network = each.family in (socket.AF_INET, socket.AF_INET6)
    return network and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
