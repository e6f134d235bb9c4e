"""`python -m tests.equal CHECKOUT [SYSTEM ...]`: train every system, or those named, in two partitions by
this code and by another checkout's, and compare losses, weights and bytes bit for bit.

It prints a line per run, and ends with 1 where any differs. Both take the same interpreter; CHECKOUT is a
clone or worktree at the other revision.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
import torch

from harness.run import runner
from tests.pages import CONF, ROOT

GRAPH = "dataset=twin/flickr dataset.scale=0.01 workers=3 epochs=6 threads=1 order=transform seed=1"
EDGE_CUTS, VERTEX_CUTS = ("metis", "random"), ("ebv", "hep")
# Rounds of an asynchronous run depend on who comes first.
WORDS = {"digest_a": "system.order=rotation"}


def trained(checkout: Path, system: str, partition: str, folder: Path) -> dict[str, object]:
    """Losses by epoch, bytes by kind and every tensor of the last checkpoints, of a run in `folder`."""
    words = (
        f"system={system} partition={partition} {GRAPH} {WORDS.get(system, '')} keep_checkpoint=true".split()
    )
    places = [f"results={folder / 'results'}", f"cache={folder / 'cache'}"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *words, *places], cwd=checkout, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(checkout), "HOME": str(folder)},
    )  # fmt: skip
    if done.returncode:
        return {"refused": done.stderr.strip().splitlines()[-1]}
    (run,) = (folder / "results").glob("*/*/config.yaml")
    epochs, sent = (pd.read_parquet(run.parent / f"{name}.parquet") for name in ("epochs", "comm"))
    keys = ["epoch", "worker", "layer", "direction", "purpose", "peer"]
    last = sorted((run.parent / "checkpoints").glob("epoch-*"))[-1]
    states = [torch.load(path, weights_only=True) for path in sorted(last.glob("*.pt"))]
    return {
        "losses": epochs.set_index(["epoch", "worker"])["loss"].sort_index().to_numpy().tobytes(),
        "bytes": sent.groupby(keys)[["rows", "bytes"]].sum().sort_index().to_csv(),
        "weights": [tensor.numpy().tobytes() for state in states for tensor in state["model"].values()],
    }


def main(checkout: Path, *names: str) -> int:
    differing = 0
    for system in names or sorted(path.stem for path in CONF.glob("*.yaml")):
        for partition in VERTEX_CUTS if runner.brings_partition(f"system={system}") else EDGE_CUTS:
            with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
                now = trained(ROOT, system, partition, Path(ours))
                then = trained(checkout, system, partition, Path(theirs))
            unlike = [what for what in now if now[what] != then.get(what)]
            differing += bool(unlike)
            print(
                f"{system:12} {partition:8} {'differs: ' + ', '.join(unlike) if unlike else 'equal'}",
                flush=True,
            )
            if "refused" in now:
                print(f"  {now['refused']}", flush=True)
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))
