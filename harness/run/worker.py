"""One worker of a prepared run, as torchrun starts it: `python -m harness.run.worker RUN_DIR`."""

import os
import signal
import sys
from pathlib import Path

from harness.base.heap import start_without_cache

if __name__ == "__main__":
    start_without_cache()  # before a second is spent on importing torch

from harness.base.errors import InputError
from harness.base.machine import LimitReached
from harness.base.terminal import printable
from harness.comm.service import ServiceLost
from harness.comm.transport import PeerLost
from harness.run.train import main


def ended(error: Exception, code: int) -> None:
    """Say why in one sentence, and end the process at once: closing an NCCL group that has lost a peer may
    take for ever."""
    sys.stderr.flush()
    # In one write, since the other workers of the host write to the same place.
    os.write(sys.stderr.fileno(), printable(f"error: {error}\n").encode())
    os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: torchrun --nproc-per-node WORKERS -m harness.run.worker RUN_DIR")
    # Ctrl-C is torchrun's to report: no traceback from every worker
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        main(sys.argv[1])
    except InputError as error:
        ended(error, 2)
    except (ServiceLost, LimitReached, PeerLost) as error:
        ended(error, 1)
    if os.environ.get("RANK", "0") == "0":
        # Imported here, since this brings in statistics for which no training should wait.
        from rich.console import Console

        from harness.results.report.single import run_table
        from harness.run.config import stored

        run_dir = Path(sys.argv[1])
        Console().print(run_table(run_dir, bool(stored(run_dir).get("verbose"))))
        print(run_dir)
