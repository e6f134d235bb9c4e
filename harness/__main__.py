"""`python -m harness system=NAME dataset=NAME gpus=N ...`: compose, check, prepare, train, show the
result.
"""

import sys

from harness.run.command import run


def main() -> int:
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
