"""`python -m harness.dev.bench.gpu`: on a GPU, one worker's epoch beside PyG's and DGL's, as one JSON: the
seconds of every round, their medians, and the ratios of ours to each peer's.

Everybody starts with the same weights, and the losses of the first epochs must agree. A peer that cannot run
on the device is named with the reason, and has no ratio.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from harness.base.errors import InputError, at_least, more_than
from harness.base.subcommand import command
from harness.core.architectures import Gcn
from harness.core.config import ModelConfig
from harness.core.optimisers import Adam
from harness.data import sources
from harness.data.config import DatasetConfig
from harness.data.partition.shard import Shard
from harness.dev.bench.epoch import Ours, Peer, check_losses, dgl_peer, pyg_peer, whole
from harness.dev.bench.lines import interleaved, medians
from harness.results.environment import environment

CHECKED = 3  # epochs whose losses are compared


def measured(shard: Shard, model: ModelConfig, device: torch.device, rounds: int) -> dict[str, Any]:
    """Seconds of every round, medians and ratios by name; `absent` has the peers that cannot run here."""
    ours = {f"features={how}": Ours(shard, model, Adam(), how, device) for how in ("refetch", "once")}
    weights = ours["features=once"].weights()
    makers: dict[str, Callable[[], Peer | None]] = {
        "PyG, torch.sparse CSR": partial(pyg_peer, shard, weights, Adam(), "csr", device),
        "PyG, edge_index": partial(pyg_peer, shard, weights, Adam(), "edge_index", device),
        "DGL": partial(dgl_peer, shard, weights, Adam(), device),
    }
    peers: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    for name, make in makers.items():
        try:
            peer = make()
            if peer is None:
                absent[name] = "not installed"
            else:
                peer()  # a build for CPUs may refuse only now
                peers[name] = make()  # type: ignore[assignment]  # it has just been made
        except Exception as error:  # of whatever class the peer raises where it lacks the device
            absent[name] = (str(error).splitlines() or [type(error).__name__])[0]
    everybody: dict[str, Ours | Peer] = {**ours, **peers}
    seconds = interleaved({n: partial(_timed, run, device) for n, run in everybody.items()}, rounds)
    check_losses(ours["features=once"], {k: v for k, v in everybody.items() if k != "features=once"}, CHECKED)
    found = medians(seconds)
    return {
        "seconds": found,
        "ratios": {f"{name} / {peer}": found[name] / found[peer] for name in ours for peer in peers},
        "samples": seconds,
        "absent": absent,
    }


def _timed(run: Callable[[], None], device: torch.device) -> None:
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@command("python -m harness.dev.bench.gpu")
def main(words: list[str], program: str) -> None:
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="default cuda")
    parser.add_argument("--scale", type=float, default=0.05, help="of the twin of Reddit (default 0.05)")
    parser.add_argument("--hidden", type=int, default=128, help="width of the hidden layer (default 128)")
    parser.add_argument("--rounds", type=int, default=20, help="epochs that are timed (default 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes too")
    asked = parser.parse_args(words)
    at_least("--rounds", asked.rounds, 1)
    more_than("--scale", asked.scale, 0)
    if asked.device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device=cuda but no CUDA device is visible; give --device cpu for a trial")
    graph = sources.load(DatasetConfig(name="reddit", source="twin", scale=asked.scale), Path("data"), 1)
    device = torch.device(asked.device)
    model = Gcn(layers=2, hidden=asked.hidden, dropout=0.0)
    found = {
        "environment": environment(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "graph": {
            "name": "twin/reddit",
            "scale": asked.scale,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
        },
        "hidden": asked.hidden,
        **measured(whole(graph), model, device, asked.rounds),
    }
    if device.type == "cuda":
        found["peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        found["peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
    text = json.dumps(found, indent=1)
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
