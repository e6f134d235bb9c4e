"""One large epoch of four workers, counted by Comm and by a loopback interface of their own."""

import ctypes
import fcntl
import os
import socket
import struct

from harness.dev.conformance.pool import WorkerPool
from tests import jobs


def own_network() -> bool:
    """Move to a network of our own, with a loopback that nobody else uses; False where that is not
    allowed.
    """
    CLONE_NEWUSER, CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x10000000, 0x40000000, 0x8914, 0x1
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    return True


def measure(pipe) -> None:
    """Send what Comm and the interface counted, or None where these workers can have no network of their
    own. To be called in a process of its own, which moves there; its workers must be forked from it."""
    if not own_network():
        return pipe.send(None)
    pool = WorkerPool(start="fork")
    pipe.send(pool.run(jobs.epoch_bytes, 4, 4000, 256, transport="sockets")[0])
    pool.close()
