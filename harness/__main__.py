"""`python -m harness`, which is the installed command `halobench`: see `harness.cli`."""

import sys

from harness.cli import main

if __name__ == "__main__":
    sys.exit(main())
