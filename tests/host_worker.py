"""torchrun, with the words of its command line, of several prepared runs in turn: RUN_DIR ...; the last as
`harness.run.worker` does. What each ended with is printed.

One process per host imports torch, and its workers are forked from it: torchrun starts functions as it does
programs, and importing takes longer than the runs.
"""

import logging
import os
import runpy
import signal
import sys
from typing import Any

import torch.distributed as dist
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args

from harness.base.errors import InputError
from harness.base.heap import STARTED
from harness.base.loading import load
from harness.run.train import main

rendezvous = dist.rendezvous


def meet_for(number: int) -> None:
    """Let workers meet for run `number` in a part of torchrun's store of its own."""

    def prefixed(*words: Any, **options: Any) -> Any:
        for store, rank, size in rendezvous(*words, **options):
            yield dist.PrefixStore(f"run-{number}", store), rank, size

    dist.rendezvous = prefixed


def work(*run_dirs: str) -> None:
    """One worker of all runs."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # torchrun's own handlers came along
    logging.disable(logging.NOTSET)
    *runs, last = run_dirs
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
    os.environ[STARTED] = "1"  # the program stays in this process
    runpy.run_module("harness.run.worker", run_name="__main__")


if __name__ == "__main__":
    load("harness.run.preload")
    words = parse_args(sys.argv[1:])
    config, _, _ = config_from_args(words)
    config.start_method = "fork"
    logging.disable()  # torch imports its compiler to log that a function failed
    elastic_launch(config, work)(words.training_script, *words.training_script_args)
