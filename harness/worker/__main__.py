"""One worker of a prepared run, as torchrun starts it: `python -m harness.worker RUN_DIR`."""

from __future__ import annotations

import signal
import sys

from harness.check import InputError
from harness.comm.service import ServiceLost
from harness.run.worker import main

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: torchrun --nproc-per-node WORKERS -m harness.worker RUN_DIR")
    # Ctrl-C is torchrun's to report: no traceback from every worker
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        main(sys.argv[1])
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except ServiceLost as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
