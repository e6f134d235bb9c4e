"""CPU seconds of an epoch of exact training: four workers beside one, and the floor of four; and the order of
A X W that is chosen, beside both orders forced.

Remote rows pass a layer's product with W at every worker that needs them, so that four workers compute more
than one does. The floor is what the products of the four shards take by themselves: one shard after the
other in this process, one thread, and an exchange that brings zeros at once.
"""

import statistics
import time
from functools import partial
from itertools import product

import numpy as np
import torch

from harness.base.heap import keep_freed_memory
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.comm.transport import Through, Transport
from harness.core.config import ModelConfig
from harness.core.kernels.spmm import NumbaKernel
from harness.core.optimisers import Adam
from harness.core.trainer import Trainer
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.shard import Shard
from harness.dev.bench.epoch import CPU, EXACT, order_of, tilings_of
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import WARM_UP, Setting, cpu_per_epoch, in_turn, train
from harness.results.reader import Trace
from harness.run.config import make_system

WORKERS = 4
PARTITIONS = ("metis", "random")
TARGETS = {"once": 1.20, "refetch": 1.6}  # by `features`: of one worker's CPU seconds, on METIS's parts
ABOVE_FLOOR = 1.05  # what is good beside the floor, where that is above the target
ORDER_TARGET = 1.05  # largest ratio to the better of both forced orders
FORCED = ("transform", "aggregate")


class Empty(Transport):
    """A transport that carries nothing: exchanged rows arrive at once as zeros, and a sum is the worker's own
    part."""

    name, on_host = "none", False

    def exchange(self, incoming, outgoing, receive, send):
        incoming.zero_()
        return Through()

    def broadcast(self, blocks):
        return Through()

    def all_reduce(self, tensor):
        return Through()


def cpu_lines(s: Setting) -> list[BenchLine]:
    """CPU seconds per epoch of exact training: 4 workers together over one worker with all cores, by
    `features` and partition. On METIS's parts a line is held to its target, or to 5 % above the floor where
    that is more."""
    graph, extent = s.graph(), s.extent
    runs = {
        (features, partition): partial(
            train,
            s.folders,
            system__features=features,
            **({"gpus": WORKERS, "partition": partition} if partition else {"gpus": 1}),
            **extent.runs,
        )
        for features in TARGETS
        for partition in (None, *PARTITIONS)
    }
    found = in_turn(runs, s.rounds, lambda run: cpu_per_epoch(run.trace))
    lines = []
    for partition in PARTITIONS:
        assignment = assign(graph, partition, WORKERS, 1).astype(np.int32)
        shards = list(build_shards(graph, assignment, WORKERS))
        for features, target in TARGETS.items():
            ours, one = found[features, partition], found[features, None]
            least = floor(shards, features, extent.model, extent.rounds)
            share = least / statistics.median(one)
            note = f"floor {share:.2f}; {statistics.median(ours) / least:.2f} of it"
            held = max(target, ABOVE_FLOOR * share) if partition == "metis" else None
            what = f"4 workers, {features}, {partition} / one worker"
            lines.append(BenchLine.of(what, "CPU s", ours, one, held, note))
    return lines


def floor(shards: list[Shard], features: str, model: ModelConfig, epochs: int) -> float:
    """CPU seconds per epoch of all shards, one after the other and without what they send. Of each shard it
    is the median over epochs, the first ones left out."""
    torch.set_num_threads(1)
    keep_freed_memory()
    total = 0.0
    for rank, shard in enumerate(shards):
        comm = Comm(rank, len(shards), CPU, Recorder(), Empty())
        trainer = Trainer(
            shard,
            comm,
            make_system({"_target_": EXACT, "features": features}),
            model,
            Adam(),
            seed=1,
            epochs=epochs,
            kernel=NumbaKernel(tilings_of(shard.inner_edges, shard.halo_edges)),
            order=order_of(shard),
        )
        seconds = []
        for epoch in range(epochs):
            begun = time.process_time()
            trainer.train_epoch(epoch)
            seconds.append(time.process_time() - begun)
        total += statistics.median(seconds[min(WARM_UP, epochs - 1) :])
    return total


def order_lines(s: Setting) -> list[BenchLine]:
    """CPU seconds per epoch of all workers, `order=auto` over the better forced order; METIS."""
    lines = []
    for count, width, features in product(s.extent.workers, s.extent.hidden, ("refetch", "once")):
        case = {"gpus": count, "system__features": features, "partition": "metis", **s.extent.runs}
        case["model__hidden"] = width
        runs = {order: partial(train, s.folders, **case, order=order) for order in ("auto", *FORCED)}
        found = in_turn(runs, s.rounds, lambda run: (cpu_per_epoch(run.trace), chosen(run.trace)))
        samples = {order: [seconds for seconds, _ in each] for order, each in found.items()}
        better, worse = sorted(FORCED, key=lambda order: statistics.median(samples[order]))
        note = (
            f"chosen: {' or '.join(sorted({each for _, each in found['auto']}))};"
            f" {worse} {statistics.median(samples[worse]):.3g}"
        )
        name = f"{count} workers, hidden {width}, {features}: chosen / {better}"
        lines.append(BenchLine.of(name, "CPU s", samples["auto"], samples[better], ORDER_TARGET, note))
    return lines


def chosen(trace: Trace) -> str:
    """The order of each layer, as "transform, aggregate"; where workers differ, how many transform first."""
    metrics = trace.metrics
    shares = metrics[metrics.name == "transform_first"].groupby("layer").value.mean()
    names = {0.0: FORCED[1], 1.0: FORCED[0]}
    return ", ".join(names.get(share, f"{share:.0%} {FORCED[0]}") for share in shares)
