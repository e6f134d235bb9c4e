"""DIGEST-A: how its parameter server ends."""

from __future__ import annotations

import socket
import subprocess
import sys


def test_the_server_ends_without_a_word_when_its_workers_hang_up_before_worker_0_lets_go_of_it(tmp_path):
    command = [sys.executable, "-m", "harness.comm.server", str(tmp_path / "socket"), "1", "arrival", "1.0", "float32"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        with socket.socket(socket.AF_UNIX) as worker:
            worker.connect(str(tmp_path / "socket"))
        assert (process.wait(60), process.stderr.read()) == (0, b"")
