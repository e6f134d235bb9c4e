"""Another process of the machine that talks to every port on which a run listens, until the run is over."""

import contextlib
import random
import socket

import psutil

from tests.torture.beside import Beside

LEFT_OPEN = 64  # connections at most, the oldest closed first


class Impostor(Beside):
    """Connects to whatever the processes of a command listen on, from its start to its end, and sends nothing
    or some bytes.

    reached   how many connections were taken
    """

    def __init__(self, process: psutil.Process, draw: random.Random):
        self.process, self.draw, self.reached = process, random.Random(draw.random()), 0
        super().__init__()

    def go_on(self) -> None:
        connections: list[socket.socket] = []
        while not self.over.wait(0.005):
            for port in self._ports():
                with contextlib.suppress(OSError):
                    connections.append(self._connected(port))
                    self.reached += 1
            for old in connections[:-LEFT_OPEN]:
                old.close()
            del connections[:-LEFT_OPEN]
        for each in connections:
            each.close()

    def _ports(self) -> set[int]:
        found = set()
        with contextlib.suppress(psutil.Error):
            for each in (self.process, *self.process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    found |= {c.laddr.port for c in each.net_connections("inet") if c.status == "LISTEN"}
        return found

    def _connected(self, port: int) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port), timeout=0.05)
        try:
            made.sendall(self.draw.randbytes(self.draw.choice((0, 1, 8, 64, 4096))))
        except OSError:
            made.close()
            raise
        return made
