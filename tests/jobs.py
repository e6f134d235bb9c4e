"""What tests ask of pooled workers: functions of (comm, ...) that are importable there."""

import os
import time
from collections import Counter
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.base.target import ALLOW
from harness.comm import sparse as wire
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.members import WorkerPlace
from harness.comm.recorder import Recorder
from harness.comm.store import Store
from harness.comm.work import PRODUCTS
from harness.core.attention import _Attend
from harness.core.cluster import Cluster
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.dev.bench.overlap import SlowLink
from harness.dev.conformance.runs import Settings, make_trainer, train
from harness.run.config import make
from systems.digest_a import DigestA

SLOW = 1e6  # bytes per second


def train_over_slow_link(comm, *given) -> dict:
    """`train` over the bench's slow link."""
    return train(SlowLink(comm.rank, comm.size, comm.device, Recorder(), comm.transport, rate=SLOW), *given)


def train_halved(comm, *given) -> dict:
    """`train` with rows that travel as bfloat16."""
    comm.halves = True
    return train(comm, *given)


def train_in_blocks_of_a_row(comm, *given) -> dict:
    """`train` with dense rows that are put on the wire one by one."""
    before, wire.BLOCK = wire.BLOCK, 1
    try:
        return train(comm, *given)
    finally:
        wire.BLOCK = before


def counted_apart(comm, *given) -> dict:
    """`train`, with what its products do noted beside the recorder: from the operands that torch and the
    compiled loops are given, walked entry by entry. `told` and `seen` hold, by epoch, how often there was
    (kind, segment, layer, operations, bytes read, bytes written)."""
    recorder, seen = comm.recorder, {}

    def note(kind: str, flops: int, read: int, written: int) -> None:
        if recorder.training:
            place = recorder._segment.name, recorder._segment.layer
            seen.setdefault(recorder.epoch.epoch, Counter())[kind, *place, flops, read, written] += 1

    class Dense(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **(kwargs or {}))
            if function is torch.ops.aten.mm.default:
                note("dense", 2 * made.numel() * args[0].shape[1], sum(a.nbytes for a in args), made.nbytes)
            return made

    def sparse(product, x, row, column, loops, out, accumulate):
        block, valued = product._block, product._values is not None
        flops, read = 0, block.indptr.nbytes
        for v in range(block.num_rows):
            for u in block.indices[block.indptr[v] : block.indptr[v + 1]]:
                flops += x.shape[1] * (2 if valued else 1)
                read += x[u].nbytes + block.indices.itemsize + (x.itemsize if valued else 0)
        flops += out.numel() * ((row is not None) + loops)
        read += (len(out) * x.itemsize if row is not None else 0) + out.nbytes * (loops + accumulate)
        if column is not None:
            flops, read = flops + x.numel(), read + x.nbytes + len(x) * x.itemsize
        note("sparse", flops, read, out.nbytes + (x.nbytes if column is not None else 0))
        return plain[0](product, x, row, column, loops, out, accumulate)

    def ahead(ctx, y, source, target, edges):
        z = plain[1](ctx, y, source, target, edges)
        (heads, width), size, did = y.shape[1:], y.itemsize, Counter(read=edges.indptr.nbytes)
        for v in range(edges.num_rows):
            for _ in range(edges.indptr[v], edges.indptr[v + 1]):
                did["read"] += edges.indices.itemsize
                for _ in range(heads):
                    # The two halves of the score; its exponential less the largest's, over their sum; a y.
                    did.update(flops=4 + 2 * width, read=(2 + width) * size, written=size)
        note("attention", did["flops"], did["read"], z.nbytes + did["written"])
        return z

    def back(ctx, g):
        made, edges = plain[2](ctx, g), ctx.edges
        (heads, width), size = g.shape[1:], g.itemsize
        did = Counter(read=edges.indptr.nbytes + edges.starts.nbytes)
        for _ in range(edges.num_edges):
            did["read"] += edges.indices.itemsize + edges.edge.itemsize + edges.target.itemsize
            for _ in range(heads):
                did.update(flops=5 + 4 * width, read=(5 + 2 * width) * size, written=size)
        note("attention", did["flops"], did["read"], did["written"] + sum(m.nbytes for m in made[:3]))
        return made

    plain = NumbaProduct.apply, _Attend.forward, _Attend.backward
    NumbaProduct.apply, _Attend.forward, _Attend.backward = sparse, staticmethod(ahead), staticmethod(back)
    try:
        with Dense():
            answer = train(comm, *given)
    finally:
        NumbaProduct.apply, _Attend.forward = plain[0], staticmethod(plain[1])
        _Attend.backward = staticmethod(plain[2])
    told = [Counter() for _ in answer["spans"]]
    for count, (_, spans) in zip(told, answer["spans"]):
        for span in spans:
            for did in span.work:
                if did.kind in PRODUCTS:
                    count[did.kind, span.name, span.layer, did.flops, did.read, did.written] += 1
    return {**answer, "told": told, "seen": [seen[epoch] for epoch in range(len(told))]}


def sums(comm, block: dict) -> tuple[list, list, object]:
    """Three epochs of random gradients [9, 6] and [5]: these, what came of them, and the worker's combiner's
    state."""
    comm = Comm(comm.rank, comm.size, comm.device, Recorder(), comm.transport)
    generator = torch.Generator().manual_seed(comm.rank)
    weights = [torch.nn.Parameter(torch.zeros(*shape).double()) for shape in ((9, 6), (5,))]
    combiner, given, made = make("combine", block).make(weights, comm, 3), [], []
    for _ in range(3):
        gradients = [torch.randn(w.shape, generator=generator).double() for w in weights]
        given.append([g.clone() for g in gradients])
        combiner.sum(gradients)
        made.append(gradients)
    return given, made, combiner.state_dict()


def devices(comm, run, run_dir) -> Cluster | None:
    """What a run's workers take their devices to be."""
    from harness.run.devices import cluster_of  # pyarrow: only here

    return cluster_of(run, run_dir, comm, WorkerPlace.on_cpu(comm.rank, comm.size))


def exact_inputs(comm, block: dict, how: Settings, shard) -> dict[int, torch.Tensor]:
    """What an exact forward pass of a new trainer gives its hidden layers to take in."""
    trainer = make_trainer(comm, block, how, shard)
    found = trainer.exact_inputs()
    trainer.closing.close()
    return found


def work(comm, run_dir) -> None:
    """A worker's whole run, from a prepared run folder."""
    from harness.run import config, train  # what only a run of its own needs

    os.environ[ALLOW] = "tests"  # systems of the tests, as the launcher would have trusted them
    seat = WorkerPlace.on_cpu(comm.rank, comm.size)
    train.train(config.load(run_dir), run_dir, seat, comm.transport, Recorder())


class Stopped(Exception):
    pass


def work_until_saved(comm, run_dir) -> int:
    """As `work`, but ends when the first checkpoint is written. Returns this worker's rounds until then."""
    from harness.core.checkpoint import Checkpoints

    save = Checkpoints.save

    def save_and_stop(checkpoints, trainer, *given):
        save(checkpoints, trainer, *given)
        trainer.closing.close()
        raise Stopped(trainer.next_epoch)

    Checkpoints.save = save_and_stop
    try:
        work(comm, run_dir)
    except Stopped as stopped:
        return stopped.args[0]
    finally:
        Checkpoints.save = save


def traced_when_saved(comm, run_dir) -> tuple[dict[int, int], dict[int, int]]:
    """As `work`. Returns the bytes of this worker's operations, and those in the table `comm`, by epoch, as
    they were on the disk when the first checkpoint had been written. Operations end when they are waited for,
    so that some are under way."""
    from harness.comm.flight import InFlight
    from harness.core.checkpoint import Checkpoints
    from harness.results.reader import Trace

    save, look, found = Checkpoints.save, InFlight.look, []

    def save_and_read(checkpoints, *given):
        save(checkpoints, *given)
        trace = Trace(run_dir)
        found.extend(
            rows[rows.worker == comm.rank].groupby("epoch")["bytes"].sum().to_dict()
            for rows in (trace.spans.query("kind == 'comm'"), trace.comm)
        )

    Checkpoints.save, InFlight.look = save_and_read, lambda flight: None
    try:
        work(comm, run_dir)
    finally:
        Checkpoints.save, InFlight.look = save, look
    return found[0], found[1]


@dataclass
class Behind(DigestA):
    """Before its round r, worker 1 waits until the server has `pace` r updates, or the next multiple of
    `meeting`, where the others wait for it. They wait for nothing else but its first update."""

    pace: int = 1
    meeting: int = 1

    def before_epoch(self, epoch):
        wanted = self.comm.size if epoch else 0
        if self.comm.rank == 1:
            wanted = min(self.pace * epoch, (self.version // self.meeting + 1) * self.meeting)
        deadline = time.monotonic() + 60
        while self.server.read()[1] < wanted:
            assert time.monotonic() < deadline, "the others wait too"
        super().before_epoch(epoch)


def epoch_bytes(comm, rows, width) -> tuple[int, int]:
    """Bytes counted by all workers for one large epoch, and what the loopback interface counted meanwhile."""
    counts = [rows if p != comm.rank else 0 for p in range(comm.size)]
    plan = HaloPlan(torch.arange(rows).repeat(comm.size - 1), counts, counts)
    h = torch.ones(rows, width, requires_grad=True)
    comm.barrier()
    before = loopback_bytes()
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        comm.exchange(plan, h, layer=1).wait().sum().backward()
        blocks = [torch.zeros(rows, width) for _ in range(comm.size)]
        comm.broadcast_blocks(blocks, range(comm.size), 0, "forward", "blocks").wait()
        comm.all_reduce(torch.ones(rows * width), "weights")
    counted = sum(size for _, size in comm.recorder.epoch.sent.values())
    total = int(comm.total([counted])[0])
    return total, loopback_bytes() - before


def loopback_bytes() -> int:
    for line in open("/proc/net/dev"):
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    raise AssertionError("no loopback interface")


def through_store(comm, address, shard) -> dict:
    """Three pushes a worker of rows that hold stamp, layer and global id; what each pull gives, and what was
    counted.
    """
    store = Store(address, comm, shard, {1: 3, 2: 5})
    ids = torch.as_tensor(shard.inner)[:, None].float()
    pulled, late = {}, {}

    def of(stamp: int) -> dict:
        return {layer: store.pull(layer, [stamp] * comm.size).wait()[0].clone() for layer in store.widths}

    comm.recorder.begin_epoch(0)
    for stamp in (7, 8, 9):
        for layer, width in store.widths.items():
            rows = ids + 1000 * layer + 10_000 * stamp
            store.push(layer, rows.expand(-1, width).contiguous(), stamp).wait()
        comm.barrier()
        if stamp > 7:
            # The push before is still there for whoever is late.
            pulled[stamp], late[stamp] = of(stamp), of(stamp - 1)
        comm.barrier()
    newest, stamps = store.pull(1, [None] * comm.size).wait()
    newest = newest.clone()
    comm.barrier()
    comm.recorder.begin_epoch(1)
    with comm.recorder.train():
        pushing = store.push(1, ids.expand(-1, 3).contiguous(), 10)
        pulling = store.pull(2, [9] * comm.size)
        pushing.wait()
        pulling.wait()
        store.pull(1, [None] * comm.size).wait()
    comm.barrier()
    contents = store.contents()
    other = Store(address, comm, shard, {1: 3, 2: 5})
    other.restore(contents)
    again = other.pull(1, [10] * comm.size).wait()[0].clone()
    again_late = other.pull(2, [8] * comm.size).wait()[0].clone()
    comm.barrier()
    store.close()
    other.close()
    return {
        "pulled": pulled,
        "late": late,
        "newest": newest,
        "stamps": stamps,
        "again": again,
        "again_late": again_late,
        "sent": dict(comm.recorder.epoch.sent),
        "spans": comm.recorder.epoch.spans,
        "nbytes": store.nbytes,
    }


def failing_push(comm, address, shard) -> str:
    """A push of rows of another width: the background thread's error is the one `wait` raises."""
    store = Store(address, comm, shard, {1: 3})
    operation = store.push(1, torch.zeros(shard.num_inner + 1, 4), 1)
    try:
        operation.wait()
        return "nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        comm.barrier()
        store.close()


def racing(comm, pushes, shard) -> dict:
    """Worker 0 pushes as fast as it can while the others pull the newest: no row may mix two pushes."""
    store = Store("shared", comm, shard, {1: 64})
    store.push(1, torch.zeros(shard.num_inner, 64), 0).wait()
    comm.barrier()
    seen, torn = set(), 0
    first, rounds = shard.halo_counts[0], 8
    for number in range(rounds):  # between which they meet, so that readers see others however slow they are
        for stamp in range(number * pushes // rounds + 1, (number + 1) * pushes // rounds + 1):
            if comm.rank == 0:
                store.push(1, torch.full((shard.num_inner, 64), float(stamp)), stamp).wait()
            else:
                rows, stamps = store.pull(1, [None] * comm.size).wait()
                seen.add(stamps[0])
                torn += int((rows[:first] != stamps[0]).any())
        comm.barrier()
    return {"seen": len(seen), "torn": torn}


def through_small_blocks(comm, address, shard) -> dict:
    """`through_store` with Redis strings of a few rows each."""
    from harness.comm import redis_store

    whole, redis_store.BLOCK_BYTES = redis_store.BLOCK_BYTES, 64
    try:
        return through_store(comm, address, shard)
    finally:
        redis_store.BLOCK_BYTES = whole
