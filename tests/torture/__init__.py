"""A campaign against runs and files, drawn from a seed: `python -m tests.torture`, or `make torture`.

What it holds: no file that the program wrote and something damaged is accepted with another result; raw input
is refused in one sentence or read to a valid graph; a run that was killed, stopped, frozen, out of disk or
memory, or met by a stranger goes on to the same bits; nothing ends in a traceback, a crash or a hang, takes
more memory than it should, or leaves a file elsewhere.
"""

import os

# Torch prints where in C++ it lost a store that has ended; that of the commands themselves is looked at.
os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
import torch  # noqa: F401

del os.environ["TORCH_CPP_LOG_LEVEL"]
