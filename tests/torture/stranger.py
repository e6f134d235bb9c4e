"""Somebody who reaches the store in which the workers of a run meet, and writes over what they tell there."""

import contextlib
import datetime
import json
import random
import socket

import torch.distributed as dist

from tests.torture.beside import Beside

NAMES = ("member", "folder", "sees", "describing", "left", "mark")
KEYS = ("failed", *(f"{name}/{rank}" for name in NAMES for rank in range(2)))


class Stranger(Beside):
    """Writes under some keys, which are drawn, again and again: junk, JSON, what a terminal obeys, or what
    stands under another key; from a moment on that is drawn, soon after the store can be reached.

    written   how often it could
    """

    def __init__(self, port: int, draw: random.Random):
        self.port, self.draw, self.written = port, random.Random(draw.random()), 0
        self.keys = self.draw.sample(KEYS, self.draw.randint(1, 3))
        super().__init__()

    def go_on(self) -> None:
        while not self.over.wait(0.01):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
        self.over.wait(self.draw.choice((0, 2 * self.draw.random())))
        with contextlib.suppress(RuntimeError):  # the store has ended with its run
            store = dist.TCPStore("127.0.0.1", self.port, None, False, datetime.timedelta(seconds=1))
            while not self.over.wait(0.002):
                store.set(self.draw.choice(self.keys), self._value(store))
                self.written += 1

    def _value(self, store: dist.Store) -> bytes:
        other = self.draw.choice(KEYS)
        copied = store.get(other) if store.check([other]) else b""
        told = json.dumps([self.draw.randint(0, 9), "\x1b[2J"]).encode()
        return self.draw.choice((copied, told, self.draw.randbytes(64), b"\n" * 9))
