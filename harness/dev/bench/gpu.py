"""On a GPU, one worker's epoch beside PyG's and DGL's.

Everybody starts with the same weights, and the losses of the first epochs must agree. A peer that cannot run
on the device has a line with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import torch

from harness.core.config import ModelConfig
from harness.core.optimisers import Adam
from harness.data.graph import Graph
from harness.dev.bench.epoch import Ours, Peer, check_losses, dgl_peer, pyg_peer, whole
from harness.dev.bench.lines import BenchLine, interleaved

CHECKED = 3  # epochs whose losses are compared


def gpu_lines(
    graph: Graph, model: ModelConfig, rounds: int, device: torch.device | None = None
) -> list[BenchLine]:
    """A line per way of taking features and peer, and all sides' peak memory; None: CUDA's own device."""
    if device is None:
        if not torch.cuda.is_available():
            return [BenchLine.absent("gpu", "an epoch", "s", "no CUDA device is visible")]
        device = torch.device("cuda")
    shard = whole(graph)
    lines: list[BenchLine] = []
    ours = {f"features={how}": Ours(shard, model, Adam(), how, device) for how in ("refetch", "once")}
    weights = ours["features=once"].weights()
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
            lines.append(BenchLine.absent("gpu", name, "s", why))
    everybody: dict[str, Ours | Peer] = {**ours, **peers}
    seconds = interleaved({n: partial(_timed, run, device) for n, run in everybody.items()}, rounds)
    check_losses(ours["features=once"], {k: v for k, v in everybody.items() if k != "features=once"}, CHECKED)
    for how, name in product(ours, peers):
        lines.append(BenchLine.of("gpu", f"one worker {how} / {name}", "s", seconds[how], seconds[name]))
    if device.type == "cuda":
        lines.append(BenchLine("gpu", "peak allocated", torch.cuda.max_memory_allocated(device) / 1e6, "MB"))
        lines.append(BenchLine("gpu", "peak reserved", torch.cuda.max_memory_reserved(device) / 1e6, "MB"))
    return lines


def _timed(run: Callable[[], None], device: torch.device) -> None:
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
