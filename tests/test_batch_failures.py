"""What goes wrong in a mini-batch: a thread that draws ahead fails, a batch is too large for memory."""

import re

import pytest

from harness.results.reader import Trace
from tests.launching import write_graph

# Fails, on worker 1 from epoch 3 on while a file is there: in its sampler, or for want of memory in a batch
# that takes all neighbours, where no more address space is to be had and all but a megabyte of the freed is
# taken.
FAILING = """
import os, resource
import numpy as np
from systems.distdgl import Distdgl
from systems.parts.neighbours import ALL

def now(system, epoch):
    return epoch >= 3 and system.comm.rank == 1 and os.path.exists(os.environ["HALOBENCH_HOLD"])

class Failing(Distdgl):
    def drawn(self, epoch, step, inside):
        if now(self, epoch):
            raise ZeroDivisionError("told to fail\\nover two lines")
        return super().drawn(epoch, step, inside)

class Hungry(Distdgl):
    def make_batch(self, epoch, step):
        if now(self, epoch):
            self.most = [ALL] * self.num_layers
            with open("/proc/self/statm") as counts:
                size = int(counts.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
            self.taken = []
            try:
                while True:
                    self.taken.append(np.empty(2**18, np.int8))
            except MemoryError:
                del self.taken[-4:]
        return super().make_batch(epoch, step)
"""


@pytest.fixture
def failing(place):
    """Options that come before a command with system=failing or system=hungry."""
    (place.folder / "modules" / "failing.py").write_text(FAILING)
    knobs = "fanouts: [1]\nbatch: 10\nprefetch: 2\n"
    for name in ("Failing", "Hungry"):
        path = place.folder / "conf" / "system" / f"{name.lower()}.yaml"
        path.write_text(f"_target_: failing.{name}\n{knobs}")
    place.hold.touch()
    return (place.more,)


@pytest.mark.nightly(70)
def test_a_sampler_that_fails_ends_the_run_in_a_sentence_and_it_goes_on_bit_for_bit(place, failing):
    command = (*failing, "system=failing", "epochs=6")
    done = place.run(*command)
    assert done.code == 1 and done.err.count("\n") == 1, done.err
    assert done.err.startswith("error: worker 1: the thread that samples failed in epoch 4, step 1")
    assert "(ZeroDivisionError: told to fail over two lines)" in done.err
    assert "goes on from the last checkpoint" in done.err
    assert_checkpoint_is_that_of_epoch_2(place.runs()[0])
    place.hold.unlink()
    place.goes_on_bit_for_bit(*command)
    trace = Trace(place.runs()[0])
    (steps,) = set(trace.metrics.query("name == 'steps'").value)
    assert trace.resolved["steps"] == steps > 1


def assert_checkpoint_is_that_of_epoch_2(run) -> None:
    assert (run / "checkpoints" / "latest").read_text() == "2" and Trace(run).epochs["epoch"].max() == 2


def test_a_worker_out_of_memory_in_a_batch_says_how_large_it_is(place, failing):
    path = place.folder / "wide.npz"
    write_graph(path, 200, num_features=20_000)
    done = place.run(*failing, "system=hungry", "system.prefetch=0", f"dataset.path={path}")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    told = r"error: worker 1 ran out of memory in epoch 4, step \d, in a batch of 10 seeds( and \d+ inputs)?;"
    assert re.match(told + " give a smaller system.batch or smaller system.fanouts\n", done.err)
    assert_checkpoint_is_that_of_epoch_2(place.runs("wide/*")[0])
