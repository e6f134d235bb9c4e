"""Writing the trace of an asynchronous run, whose workers make rounds at their own pace (docs/trace.md).

A worker's round is a row of that worker, under the round's number. An epoch of the run is P updates of the
weights, from whichever workers they come. It belongs to no single worker, so it is a row of its own, with RUN
in the place of the worker. A round's metric UPDATE says which update the round made: update u falls in epoch
u // P of the run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import SupportsFloat

from harness.comm.comm import Comm
from harness.comm.recorder import Epoch
from harness.results.schema import RUN, UPDATE
from harness.results.writer import TraceWriter


class AsynchronousTrace:
    """A worker's trace of its rounds; on worker 0 also the streams of the run's epochs.

    own              the writer of the worker's rounds; `close` closes it too
    attempt, first   as `TraceWriter` takes them, for the streams of the run's epochs
    share            this worker's share of all training vertices, 0 to 1
    """

    def __init__(self, run_dir: Path, own: TraceWriter, comm: Comm, attempt: int, first: int, share: float):
        self.own, self.comm, self.share = own, comm, share
        self.run = TraceWriter(run_dir, RUN, attempt, first) if comm.rank == 0 else None
        # This worker's share of the loss in its latest round, and its share of the training vertices.
        self.latest = (0.0, 0.0)

    def settle(self) -> None:
        """As `TraceWriter.settle`, of this worker's rounds."""
        self.own.settle()

    def epochs(
        self, rounds: Sequence[tuple[Epoch, SupportsFloat]], first: int, done: int, peak_rss_bytes: int
    ) -> list[tuple[Epoch, float | None]]:
        """Write this worker's rounds since the workers last met, each with its share of the loss. Collective.

        Returns the run's epochs from `first` up to `done`, exclusive, which are still to be evaluated and
        written, each with this worker's term of its loss. That loss is the mean over the training vertices of
        all workers, each worker at its latest round up to the epoch. Workers that have made no round since
        the run was started (or resumed) are left out of the mean; where no worker with training vertices is
        left, the term is None."""
        for record, loss in rounds:
            self.own.write(record, loss=float(loss), scores=None, peak_rss_bytes=peak_rss_bytes)
        updates = [(record.metrics.get((-1, UPDATE)), float(loss)) for record, loss in rounds]
        falls_in = {update // self.comm.size: loss for update, loss in updates if update is not None}
        latest = []
        for epoch in range(first, done):
            if epoch in falls_in:
                self.latest = falls_in[epoch], self.share
            latest.append(self.latest)
        if done in falls_in:  # rounds of the next epoch, made before the workers met
            self.latest = falls_in[done], self.share
        seen = self.comm.total([share for _, share in latest])
        shares = [loss / whole if whole else None for (loss, _), whole in zip(latest, seen)]
        return [(Epoch(first + i), loss) for i, loss in enumerate(shares)]

    def write(
        self, epoch: Epoch, *, loss: float | None, scores: Mapping[str, float] | None, peak_rss_bytes: int
    ) -> None:
        """Append one epoch of the run on worker 0; does nothing on the others."""
        if self.run is not None:
            # Memory stands in the workers' own rows.
            self.run.write(epoch, loss=loss, scores=scores, peak_rss_bytes=0)

    def close(self) -> None:
        self.own.close()
        if self.run is not None:
            self.run.close()
