"""On a GPU, one worker's epoch beside PyG's and DGL's, and beside its floor.

Everybody starts with the same weights, and the losses of the first epochs must agree. A peer that cannot run
on the device has a line with the reason. The floor is what the products and passes of an epoch would take at
the rates that this device reaches where it does nothing else: a large product, and a large copy. A gather
reads a row for every edge; where caches answer a part of that, an epoch can be below the floor.
"""

from collections.abc import Callable
from functools import partial

import torch

from harness.core.config import ModelConfig
from harness.core.optimisers import Adam
from harness.data.graph import Graph
from harness.dev.bench.epoch import Ours, Peer, beside, both_ways, dgl_peer, pyg_peer, timed, whole
from harness.dev.bench.lines import BenchLine, interleaved

CHECKED = 3  # epochs whose losses are compared
TRIES = 10  # of a copy and of a product, of which the fastest counts
SIDES = {"cpu": 2048, "cuda": 8192}  # of the square matrices whose product is timed
COPIED = {"cpu": 1 << 28, "cuda": 1 << 30}  # bytes that are copied; twice as many are beyond most caches


def gpu_lines(
    graph: Graph, model: ModelConfig, rounds: int, device: torch.device | None = None
) -> list[BenchLine]:
    """A line per way of taking features and peer, one beside its floor, and all sides' peak memory.

    device   None: CUDA's own
    """
    if device is None:
        if not torch.cuda.is_available():
            return [BenchLine.absent("an epoch", "s", "no CUDA device is visible")]
        device = torch.device("cuda")
    shard = whole(graph)
    lines: list[BenchLine] = []
    ours = both_ways(shard, model, Adam(), device)
    weights = next(iter(ours.values())).weights()
    makers: dict[str, Callable[[], Peer | None]] = {
        "PyG, torch.sparse CSR": partial(pyg_peer, shard, weights, Adam(), "csr", device),
        "PyG, edge_index": partial(pyg_peer, shard, weights, Adam(), "edge_index", device),
        "DGL": partial(dgl_peer, shard, weights, Adam(), device),
    }
    peers: dict[str, Peer] = {}
    for name, make in makers.items():
        why = "it is not installed"
        try:
            if (peer := make()) is not None:
                peer()  # a build for CPUs may refuse only now
                peers[name] = make()  # type: ignore[assignment]  # it has just been made
        except Exception as error:  # of whatever class the peer raises where it lacks the device
            why = (str(error).splitlines() or [type(error).__name__])[0]
        if name not in peers:
            lines.append(BenchLine.absent(name, "s", why))
    found, seconds = beside(ours, peers, rounds, {}, device=device, checked=CHECKED)
    lines += found
    product_rate, copy_rate = max(product_rates(device)), max(copy_rates(device))
    note = f"a product does {product_rate / 1e12:.3g} TFLOP/s, a copy {copy_rate / 1e9:.3g} GB/s"
    for how, run in ours.items():
        least = floor(run, product_rate, copy_rate)
        lines.append(BenchLine.of(f"{how} / floor", "s", seconds[how], [least], None, note))
    if device.type == "cuda":
        lines.append(BenchLine("peak allocated", torch.cuda.max_memory_allocated(device) / 1e6, "MB"))
        lines.append(BenchLine("peak reserved", torch.cuda.max_memory_reserved(device) / 1e6, "MB"))
    return lines


def floor(run: Ours, product_rate: float, copy_rate: float) -> float:
    """Seconds of the last epoch's products and passes, each by operations or bytes, whichever takes longer.

    product_rate   operations per second; copy_rate: bytes read and written per second
    """
    spans = run.trainer.recorder.epoch.spans
    work = [item for span in spans for item in span.work]
    return sum(max(w.flops / product_rate, (w.read + w.written) / copy_rate) for w in work)


def product_rates(device: torch.device) -> list[float]:
    """Operations per second of a product of float32 matrices, of each of TRIES."""
    rows = SIDES[device.type]
    side = torch.rand(rows, rows, device=device)
    out = torch.empty_like(side)
    return [2 * rows**3 / each for each in _tries(partial(torch.matmul, side, side, out=out), device)]


def copy_rates(device: torch.device) -> list[float]:
    """Bytes per second of a copy, of which each is read and written, of each of TRIES."""
    copied = COPIED[device.type]
    source = torch.zeros(copied, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return [2 * copied / each for each in _tries(partial(target.copy_, source), device)]


def _tries(run: Callable[[], object], device: torch.device) -> list[float]:
    """Seconds of each try."""
    return interleaved({"": partial(timed, run, device)}, TRIES, warm_up=1)[""]
