"""One worker of several prepared runs in turn, which saves importing torch again: RUN_DIR ...; the last as
`harness.run.worker` does. What each ended with is printed.
"""

import runpy
import sys
from typing import Any

import torch.distributed as dist

from harness.base.errors import InputError
from harness.run.train import main

rendezvous = dist.rendezvous


def meet_for(number: int) -> None:
    """Let workers meet for run `number` in a part of torchrun's store of its own."""

    def prefixed(*words: Any, **options: Any) -> Any:
        for store, rank, size in rendezvous(*words, **options):
            yield dist.PrefixStore(f"run-{number}", store), rank, size

    dist.rendezvous = prefixed


if __name__ == "__main__":
    *runs, last = sys.argv[1:]
    for number, run_dir in enumerate(runs):
        meet_for(number)
        try:
            main(run_dir)
            said = "trained"
        except InputError as error:
            said = str(error)
        # One write, since the host's other worker writes to the same stream.
        print(f"run {number}: {said}\n", end="", flush=True)
    meet_for(len(runs))
    sys.argv[1:] = [last]
    runpy.run_module("harness.run.worker", run_name="__main__")
