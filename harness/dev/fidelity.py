"""`halobench fidelity [NAME...] [--scale S] [--json]`.

How near the twins are to the published values: each is measured on the generated graph and printed beside the
published one with its source. A mark stands where they differ by more than 10 %. What a smaller scale must
change (vertices, edges) is divided by the scale.
"""

import json
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from rich.table import Table

from harness.base import tables
from harness.base.errors import at_least, choice
from harness.base.subcommand import Parser, command
from harness.base.terminal import unfolded
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.core.architectures import Gcn
from harness.core.optimisers import Adam
from harness.core.trainer import Trainer
from harness.data import twin
from harness.data.graph import Graph
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.data.twin_specs import SPECS, Published, Spec
from harness.dev.bench.epoch import EXACT, whole
from harness.run.config import make_system

TOLERANCE = 0.10
QUICK_EDGES = 6_000_000  # the default scale leaves at most this many directed edges
COSTLY = ("halo_ratio", "replication", "gcn", "no_graph")


@command("halobench fidelity")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__.partition("\n\n")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="twins; all of them by default")
    parser.add_argument(
        "--scale", type=float, help="of every twin; by default what leaves about 6 million edges"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generator")
    parser.add_argument(
        "--epochs", type=int, default=60, help="of the GCN and of the model without the graph"
    )
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=COSTLY, help="costly statistics to leave out"
    )
    parser.add_argument("--json", action="store_true", help="one JSON list instead of tables")
    options = parser.parse_args(words)
    console = unfolded()
    rows: list[dict] = []
    at_least("--epochs", options.epochs, 1)
    names = [name.removeprefix("twin/") for name in options.names] or twin.names()
    for name in names:  # before any is generated, which takes a while
        choice("twin", name, twin.names())
    for name in names:
        found = compare(
            name, scale=options.scale, seed=options.seed, epochs=options.epochs, skip=options.skip
        )
        rows += found
        if not options.json:
            console.print(_table(name, found), "")
    if options.json:
        print(json.dumps(rows, indent=1))


def compare(
    name: str, *, scale: float | None = None, seed: int = 0, epochs: int = 60, skip: Sequence[str] = ()
) -> list[dict]:
    """One row per published value, with keys twin, scale, seed, generated_s, statistic, parts, published,
    measured, ratio, off and source; and a row of "no_graph", whose `published` and `ratio` may be None.

    skip   costly statistics to leave out, of COSTLY
    """
    scale = quick_scale(name) if scale is None else scale
    started = time.perf_counter()
    graph = twin.generate(name, scale=scale, seed=seed)
    seconds = time.perf_counter() - started
    spec = SPECS[name]
    trained: dict[bool, tuple[float, float]] = {}
    figures = [*_sizes(spec), *spec.published]
    if not any(figure.statistic == "no_graph" for figure in figures):
        # Measured for every twin: where neighbours do not matter, a system that uses none would look like a
        # working one.
        figures.append(Published("no_graph", math.nan, "no published value"))
    rows = []
    for figure in figures:
        if figure.statistic.removesuffix("_val") in skip:
            continue
        value = _measure(graph, figure, scale, epochs, trained)
        ratio, known = value / figure.value, not math.isnan(figure.value)
        rows.append(
            {
                "twin": graph.name,
                "scale": scale,
                "seed": seed,
                "generated_s": round(seconds, 2),
                "statistic": figure.statistic,
                "parts": figure.parts or None,
                "published": figure.value if known else None,
                "measured": value,
                "ratio": ratio if known else None,
                "off": abs(ratio - 1.0) > TOLERANCE,
                "source": figure.source,
            }
        )
    return rows


def _sizes(spec: Spec) -> list[Published]:
    table = "dataset tables (docs/twins.md)"
    return [
        Published("vertices", spec.vertices, table),
        Published("directed_edges", spec.edges, table),
        Published("mean_degree", spec.mean_degree, table),
        Published("features", spec.features, table),
        Published("classes", spec.classes, table),
        Published("train_share", spec.split[0] / spec.vertices, "data set's own split"),
    ]


def _measure(graph: Graph, figure: Published, scale: float, epochs: int, trained: dict) -> float:
    if figure.statistic in ("gcn", "gcn_val", "no_graph"):
        use_graph = figure.statistic != "no_graph"
        if use_graph not in trained:
            trained[use_graph] = accuracy(graph, use_graph=use_graph, epochs=epochs)
        return trained[use_graph][0 if figure.statistic == "gcn_val" else 1]
    of: dict[str, Callable[[], float]] = {
        "vertices": lambda: graph.num_vertices / scale,
        "directed_edges": lambda: graph.num_edges / scale,
        "mean_degree": lambda: graph.num_edges / graph.num_vertices,
        "features": lambda: graph.num_features,
        "classes": lambda: (
            graph.num_classes if graph.multilabel else len(np.unique(graph.labels[graph.labels >= 0]))
        ),
        "train_share": lambda: float(graph.train.mean()),
        "homophily": lambda: homophily(graph),
        "halo_ratio": lambda: halo_ratio(graph, figure.parts),
        "replication": lambda: replication(graph, figure.parts),
    }
    return of[figure.statistic]()


def quick_scale(name: str) -> float:
    """The scale at which the twin has about QUICK_EDGES directed edges; 1 where it has no more anyway."""
    return min(1.0, QUICK_EDGES / SPECS[name].edges)


def homophily(graph: Graph) -> float:
    """Share of labelled vertices' edges inside a class; multi-label: mean Jaccard index of label sets."""
    targets = np.repeat(np.arange(graph.num_vertices, dtype=np.int32), np.diff(graph.indptr))  # of each edge
    ends, labels = (targets, graph.indices), graph.labels
    if not graph.multilabel:
        own, others = (labels[each] for each in ends)
        both = (own >= 0) & (others >= 0)
        return float((both & (own == others)).sum() / max(both.sum(), 1))
    common = either = np.zeros(len(graph.indices))
    for label in labels.T:  # one label at a time, so that no table of edges and labels is made
        own, others = (label[each] for each in ends)
        common, either = common + (own & others), either + (own | others)
    return float((common / np.maximum(either, 1)).sum() / max(len(graph.indices), 1))


def halo_ratio(graph: Graph, parts: int) -> float:
    """Mean halo vertices of a METIS part over its mean inner vertices (PSC-GCN Table I: boundary / inner)."""
    return halos(graph, assign(graph, "metis", parts, 0), parts) / graph.num_vertices


def halos(graph: Graph, owner: np.ndarray, parts: int) -> int:
    """Halo vertices summed over the parts."""
    return sum(shard.num_halo for shard in build_shards(graph, owner.astype(np.int32), parts))


def replication(graph: Graph, parts: int) -> float:
    """Mean replicas of a vertex under EBV, gamma 0 (CDFGNN section 6)."""
    return statistics(assign_edges(graph, "ebv", parts, 1, gamma=0.0))["replication"]


def accuracy(graph: Graph, *, use_graph: bool, epochs: int, hidden: int = 128) -> tuple[float, float]:
    """(validation, test) accuracy, or micro-F1 for label sets, at the best validation epoch of a short
    training: a GCN of two layers, dropout 0.5, Adam 0.01, seed 0; it is evaluated in every fifth epoch and in
    the last.

    Without `use_graph` it is the same model on the graph without its edges, where a vertex has itself alone.
    """
    if not use_graph:
        graph = graph.replace(indptr=np.zeros_like(graph.indptr), indices=graph.indices[:0])
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    model, optimiser = Gcn(layers=2, hidden=hidden, dropout=0.5), Adam(weight_decay=0.0)
    system = make_system({"_target_": EXACT})
    trainer = Trainer(whole(graph), comm, system, model, optimiser, seed=0, epochs=epochs)
    best = (0.0, 0.0)
    for epoch in range(epochs):
        trainer.train_epoch(epoch)
        if epoch % 5 == 4 or epoch == epochs - 1:
            best = max(best, trainer.evaluate().accuracy[1:])
    return best


def _table(name: str, rows: list[dict]) -> Table:
    scale = rows[0]["scale"]
    note = "" if scale == 1.0 else " (measured at a reduced scale; vertices and edges are divided by it)"
    headings = ("statistic", "published", "twin", "ratio", "", "source")
    title = f"twin/{name} at scale {scale:.4g}{note}"
    table = tables.shown(headings, words=("statistic", "", "source"), title=title)
    for row in rows:
        label = row["statistic"].replace("_", " ") + (f", {row['parts']} parts" if row["parts"] else "")
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        published = "-" if row["published"] is None else _figure(row["published"])
        mark = "off > 10 %" if row["off"] else ""
        table.add_row(label, published, _figure(row["measured"]), ratio, mark, row["source"])
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:.4g}"
