"""What goes wrong in a mini-batch: a thread that draws ahead fails."""

import pytest

from harness.results.reader import Trace

# Fails, on worker 1 from epoch 3 on while a file is there, in its sampler.
FAILING = """
import os
from systems.distdgl import Distdgl

class Failing(Distdgl):
    def drawn(self, epoch, step, inside):
        if epoch >= 3 and self.comm.rank == 1 and os.path.exists(os.environ["HALOBENCH_HOLD"]):
            raise ZeroDivisionError("told to fail\\nover two lines")
        return super().drawn(epoch, step, inside)
"""


@pytest.fixture
def failing(place):
    """Options that come before a command with system=failing."""
    (place.folder / "modules" / "failing.py").write_text(FAILING)
    knobs = "fanouts: [1]\nbatch: 10\nprefetch: 2\n"
    path = place.folder / "conf" / "system" / "failing.yaml"
    path.write_text(f"_target_: failing.Failing\n{knobs}")
    place.hold.touch()
    return (place.more,)


def test_a_sampler_that_fails_ends_the_run_in_a_sentence_and_it_goes_on_bit_for_bit(place, failing):
    command = (*failing, "system=failing", "epochs=6")
    done = place.run(*command)
    assert done.code == 1 and done.err.count("\n") == 1, done.err
    assert done.err.startswith("error: worker 1: the thread that samples failed at epoch 3, step 0")
    assert "(ZeroDivisionError: told to fail over two lines)" in done.err
    assert "goes on from the last checkpoint" in done.err
    (run,) = place.runs()
    assert (run / "checkpoints" / "latest").read_text() == "2" and Trace(run).epochs["epoch"].max() == 2
    place.hold.unlink()
    place.goes_on_bit_for_bit(*command)
    trace = Trace(place.runs()[0])
    (steps,) = set(trace.metrics.query("name == 'steps'").value)
    assert trace.resolved["steps"] == steps > 1
