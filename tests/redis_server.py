"""A real redis-server of a test's own, on loopback, that keeps nothing on disk."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

import pytest
import redis


class RedisServer:
    """Started at once; `url` is what `system.store` takes. `kill` ends it as a crash would, `start` brings it
    back, empty.

    password   what its clients have to give; None: nothing
    """

    def __init__(self, folder, password: str | None = None):
        self.folder, self.process, self.password = folder, None, password
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        options = {"port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": self.folder}
        if self.password:
            options["requirepass"] = self.password
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self.process = subprocess.Popen([executable(), *words], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while True:
            going = self.process.poll() is None and time.monotonic() < deadline
            assert going, "redis-server did not start"
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1) as answer,
            ):
                answer.sendall(b"PING\r\n")
                if answer.recv(7) in (b"+PONG\r\n", b"-NOAUTH"):
                    return
            time.sleep(0.02)

    def bytes_received(self) -> int:
        """By the server since it was started, of all clients."""
        with redis.Redis(port=self.port) as client:
            return client.info("stats")["total_net_input_bytes"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def executable() -> str:
    """Where redis-server is; without one the test is skipped, or fails where HALOBENCH_MUST_HAVE asks
    for it.
    """
    found = shutil.which("redis-server")
    if found is None:
        assert "redis" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), "redis-server is not installed"
        pytest.skip("redis-server is not installed (apt-get install redis-server)")
    return found
