"""`python -m harness`, which is the installed command `halobench`: see `harness.cli`."""

import signal
import sys

# A Ctrl-C before the command has begun ends this process without a traceback.
if (own := signal.getsignal(signal.SIGINT)) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
from harness.cli import main

signal.signal(signal.SIGINT, own)

if __name__ == "__main__":
    sys.exit(main())
