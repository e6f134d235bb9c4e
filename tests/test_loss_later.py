"""When a run reads its losses: waiting for one at once would let rows pass outside the clock."""

import pytest

from tests.launching import fresh_python

FOLLOWED = """
import sys
from harness.core.trainer import Trainer
from harness.run.train import main

train, start = Trainer.train_epoch, Trainer.start_global_loss

def train_epoch(self, epoch):
    print(f"train {epoch}", file=sys.stderr)
    return train(self, epoch)

def start_global_loss(self, local):
    loss, number = start(self, local), self.recorder.epoch.epoch
    print(f"start {number}", file=sys.stderr)
    return lambda: (print(f"read {number}", file=sys.stderr), loss())[1]

Trainer.train_epoch, Trainer.start_global_loss = train_epoch, start_global_loss
main(sys.argv[1])
"""


@pytest.mark.nightly(15)
def test_a_loss_is_read_an_epoch_later_where_nothing_else_makes_workers_meet(place):
    """Epoch 0 and every third are evaluated, the last is too; a checkpoint is made after the fifth."""
    done = place.run("epochs=7", "evaluate.every=3", "checkpoint_every=5", "workers=1", "launch=prepare")
    assert done.code == 0, done.err
    (run_dir,) = place.runs()
    ended = fresh_python(FOLLOWED, run_dir)
    assert ended.returncode == 0, ended.stderr
    words = ("train", "start", "read")
    seen = [line for line in ended.stderr.splitlines() if line.split(" ")[0] in words]
    read_after = {"0": "0", "1": "2", "2": "3", "3": "3", "4": "4", "5": "6", "6": "6"}
    want = []
    for epoch in map(str, range(7)):
        want += [f"train {epoch}", f"start {epoch}"]
        want += [f"read {number}" for number, after in read_after.items() if after == epoch]
    assert seen == want
