"""What a system computes beside what vanilla computes: caching, sampling, quantising, bookkeeping.

CPU seconds of the training threads in an epoch, waiting and the transport's threads left out, over vanilla's with the same `features`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import yaml

from harness.bench.lines import Line
from harness.bench.runs import WARM_UP, Folders, train
from harness.trace.reader import Trace

TARGET = 1.3
PARTITION = "random"


def configured() -> dict[str, dict[str, Any]]:
    """Every system of `conf/system/` and its values there."""
    found = sorted(path for path in (files("conf") / "system").iterdir() if path.name.endswith(".yaml"))
    return {path.name.removesuffix(".yaml"): yaml.safe_load(path.read_text()) for path in found}


def compute_per_epoch(trace: Trace) -> float:
    """CPU seconds of an epoch that all training threads spent computing, packing and keeping books: the median over epochs, so
    that an epoch in which something is renewed does not count."""
    spans = trace.spans
    # Copies to and from memory that workers share are waits of a kind, made by the training thread itself.
    own = spans.kind.isin(["compute", "other"]) | ((spans.kind == "wait") & spans.name.isin(["global_put", "global_get"]))
    settled = spans[(spans.epoch >= min(WARM_UP, int(spans.epoch.max()))) & own]
    return float(settled.groupby("epoch").cpu_s.sum().median())


def system_lines(folders: Folders, rounds: int = 3, names: list[str] | None = None, **keys) -> list[Line]:
    """A line a system, each with its values in `conf/system/`, 4 workers. The least of each one's rounds, interleaved."""
    known = configured()
    cases: dict[str, dict[str, Any]] = {f"vanilla {how}": {"system": "vanilla", "system__features": how} for how in ("refetch", "once")}
    for name in names or known:
        if name != "vanilla":
            cases[name] = {"system": name}
    for name, case in cases.items():
        if "defaults" not in known.get(name, {}):  # one over a vertex-cut chooses its own partition
            case["partition"] = PARTITION
    found = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, case in cases.items():
            found[name] = min(found[name], compute_per_epoch(train(folders, gpus=4, **case, **keys).trace))
    lines = []
    for name in cases:
        if not name.startswith("vanilla"):
            features = known[name].get("features", "once")
            note = f"features={features}" + ("; vanilla on an edge-cut" if "partition" not in cases[name] else "")
            steps = known[name].get("local_steps", 1) + known[name].get("server_steps", 0)  # each a forward and a backward pass
            if steps > 1:
                note += f"; of a step, {steps} an epoch"
            lines.append(Line("systems", f"{name} / vanilla, computing", found[name] / steps, "CPU s", found[f"vanilla {features}"],
                              TARGET, note))  # fmt: skip
    return lines
