"""Memory that is freed stays with the process, until it is given back."""

from __future__ import annotations

from tests.launching import fresh_python
from tests.memory import linux

PROGRAM = """
import psutil, torch
from harness.base.heap import give_back_freed_memory, keep_freed_memory
keep_freed_memory()
held = lambda: psutil.Process().memory_info().rss
# Pieces of 1 MB, every second of which stays, so that no hole is larger.
pieces = [torch.ones(1 << 18) for _ in range(200)]
full = held()
stays = pieces[::2]
del pieces
freed = held()
give_back_freed_memory()
print(full - freed, freed - held())
"""


@linux
def test_what_is_freed_is_kept_and_given_back_when_asked_for():
    at_once, when_asked = map(int, fresh_python(PROGRAM).stdout.split())
    assert at_once < 20e6 and when_asked > 80e6
